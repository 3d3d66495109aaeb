/* SPDX-License-Identifier: MIT
 *
 * Between weights_file.c, which finds tensors, and weights.c, which loads parts of them. */
#ifndef APRT_WEIGHTS_INTERNAL_H
#define APRT_WEIGHTS_INTERNAL_H

#include "internal.h"

#include <cJSON.h>

/* A tensor that lies in a mapped file, or in memory that is not ours. */
typedef struct aprt_entry {
    const char *name;
    const cJSON *json; /* `dtype`, `shape`: not looked at yet; NULL: it is what the program was made with */
    const char *path;  /* of the file that holds it */
    const uint8_t *bytes;
    int64_t size;
    bool kept; /* its pages are not those of a file */
} aprt_entry;

/* A whole number that a double holds exactly. */
bool aprt_json_whole(const cJSON *j, int64_t *out);
/* NULL if there is none. */
const aprt_entry *aprt_weights_find(const aprt_weights *w, const char *name);
/* Tensors are the parts of one device, not whole ones. */
bool aprt_weights_sliced(const aprt_weights *w);
const char *aprt_weights_path(const aprt_weights *w);

#endif
