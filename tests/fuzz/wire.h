/* Changing a protobuf message in one field, with the lengths of the messages around it put right. */
#ifndef AP_TESTS_FUZZ_WIRE_H
#define AP_TESTS_FUZZ_WIRE_H

#include <stddef.h>
#include <stdint.h>

typedef size_t wire_mutator(uint8_t *data, size_t size, size_t max);

/* Returns the new size. Sometimes, and when `data` is no message, the bytes are changed as such. */
size_t wire_mutate(uint8_t *data, size_t size, size_t max, unsigned seed, wire_mutator *bytes);

#endif
