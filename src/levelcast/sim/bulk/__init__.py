"""The array model of a network with thousands of receivers and millions of subscribers."""
