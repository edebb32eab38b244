"""Keys of a network: who may send, who may read, and how nodes prove it (MS §6; rules K1 to K16).

| subject                       | modules                                             |
|-------------------------------|-----------------------------------------------------|
| secret values                 | `secret`, `derive`, `process`                       |
| files                         | `files` (private keys), `statement`, `seen`         |
| holders                       | `identity`, `authority`, `keyring`                  |
| core packets                  | `packets`                                           |
| control messages              | `roles`, `replay`, `control`, `beat_macs`           |
| all of them in one process    | `core_security`, `loading`                          |

`packets`, `roles`, `replay`, `control` and `beat_macs` are sans I/O: time and datagrams in, verdicts out.
`tests/test_architecture.py` lists the packages that this one may import.
"""
