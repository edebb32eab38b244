/* Offsets and constants of a core datagram: the same as in levelcast/native/layout.py, and a test compares them. The
 * table of the header is in levelcast/wire/header.py. The size of a seal is read from each datagram. */

enum {
    VERSION = 2,
    STRIPE_AT = 4,
    SENDER_AT = 6,
    GENERATION_AT = 8,
    SALT_AT = 8, /* of a Data with an AES-256-GCM seal: drawn when the process of its source started */
    LENGTH_AT = 16,
    SEAL_KIND_AT = 20, /* then the seal's size, u8, and the key epoch, u16 */
    SEAL_SIZE_AT = 21,
    EPOCH_AT = 22,
    NETWORK_AT = 24,
    HEADER_SIZE = 32,
    KIND_DATA = 1,
    DATA_BODY_SIZE = 20, /* incarnation u64, number u64, records u32 */
    PAYLOAD_AT = HEADER_SIZE + DATA_BODY_SIZE,
    CRC32_KIND = 1,
    CRC32_SIZE = 4,
    AES_GCM_KIND = 2,
    AES_GCM_SIZE = 16 /* the tag */
};

#define DATA_MAGIC (0x434Cu | (uint32_t)VERSION << 16 | (uint32_t)KIND_DATA << 24) /* magic, version and kind */
#define CRC32_SEAL (CRC32_KIND | (uint32_t)CRC32_SIZE << 8)                       /* kind, size, and no key epoch */
#define AES_GCM_SEAL (AES_GCM_KIND | AES_GCM_SIZE << 8)                               /* kind and size */
