/* Writing one safetensors file, tensor by tensor (the format of huggingface/safetensors: length of the header, header,
 * data without gaps). */
#ifndef AP_BACKEND_SAFETENSORS_H
#define AP_BACKEND_SAFETENSORS_H

#include "backend/emit.h"

#include <stdio.h>

typedef struct ap_st_tensor {
    const char *name;
    ap_dtype dtype;
    uint8_t rank;
    int64_t dim[AP_MAX_RANK];
    uint32_t param; /* whose elements it holds */
} ap_st_tensor;

/* Writes the elements of a tensor; *out_good is false when the file cannot be written. */
typedef ap_status ap_st_body(const ap_emit *e, FILE *f, const ap_st_tensor *t, const void *user, bool *out_good);

/* `metadata` are further members of __metadata__, beginning with a comma, or "". Tensors are put in order of falling
 * element size, so that each is aligned to its own. The file appears when it is whole. */
ap_status ap_safetensors_write(const ap_emit *e, const char *file, const char *metadata, uint32_t n,
                               const ap_st_tensor *tensor, ap_st_body *body, const void *user);

const char *ap_st_dtype(ap_dtype t); /* "F32" */
void ap_json_string(ap_text *t, const char *s);
int64_t ap_st_count(const ap_st_tensor *t);

#endif
