/* Element types: the columns of AP_DTYPES as functions. */
#include "ir/dtype.h"

#include <string.h>

static const struct {
    const char *text, *c;
    int bytes, onnx;
} row[AP_DTYPE_COUNT] = {[AP_DTYPE_NONE] = {"none", "void", 0, 0},
#define X(E, text, bytes, onnx, c) [AP_##E] = {text, c, bytes, onnx},
                         AP_DTYPES(X)
#undef X
};

const char *ap_dtype_str(ap_dtype t)
{
    return row[t].text;
}
const char *ap_dtype_c(ap_dtype t)
{
    return row[t].c;
}
int ap_dtype_bytes(ap_dtype t)
{
    return row[t].bytes;
}
int ap_dtype_onnx(ap_dtype t)
{
    return row[t].onnx;
}

bool ap_dtype_from_str(const char *s, ap_dtype *out)
{
    for (int t = 1; t < AP_DTYPE_COUNT; t++)
        if (strcmp(row[t].text, s) == 0) {
            *out = (ap_dtype)t;
            return true;
        }
    return false;
}

bool ap_dtype_from_onnx(int onnx, ap_dtype *out)
{
    for (int t = 1; t < AP_DTYPE_COUNT; t++)
        if (row[t].onnx == onnx) {
            *out = (ap_dtype)t;
            return true;
        }
    return false;
}

bool ap_dtype_is_float(ap_dtype t)
{
    return t == AP_F32 || t == AP_F64 || t == AP_F16 || t == AP_BF16;
}

bool ap_dtype_is_int(ap_dtype t)
{
    return t != AP_DTYPE_NONE && t != AP_BOOL && !ap_dtype_is_float(t);
}
