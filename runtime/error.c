/* SPDX-License-Identifier: MIT
 *
 * Failure texts, element types, sizes. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

int aprt_fail(aprt_failure *why, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    /* Names from files stand in it: they must not make lines, or commands to a terminal. */
    for (char *c = why->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return status;
}

static const struct {
    int32_t dtype, bytes;
    const char *name;
} dtypes[] = {
    {APRT_F32, 4, "f32"}, {APRT_U8, 1, "u8"},   {APRT_I8, 1, "i8"},     {APRT_U16, 2, "u16"}, {APRT_I16, 2, "i16"},
    {APRT_I32, 4, "i32"}, {APRT_I64, 8, "i64"}, {APRT_BOOL, 1, "bool"}, {APRT_F16, 2, "f16"}, {APRT_F64, 8, "f64"},
    {APRT_U32, 4, "u32"}, {APRT_U64, 8, "u64"}, {APRT_BF16, 2, "bf16"},
};

int aprt_dtype_bytes(int32_t dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].bytes;
    return 0;
}

const char *aprt_dtype_name(int32_t dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return "?";
}

void aprt_shape_text(int32_t dtype, int32_t rank, const int64_t *dim, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s[", aprt_dtype_name(dtype));
    for (int32_t d = 0; d < rank && n < size; d++)
        n += (size_t)snprintf(out + n, size - n, d ? ",%lld" : "%lld", (long long)dim[d]);
    if (n < size)
        snprintf(out + n, size - n, "]");
}

bool aprt_mul(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}

bool aprt_tensor_bytes(int32_t dtype, int32_t rank, const int64_t *dim, int64_t *out)
{
    int64_t bytes = aprt_dtype_bytes(dtype);
    if (bytes == 0 || rank < 0 || rank > APRT_MAX_RANK)
        return false;
    /* A zero anywhere must not hide an overflow elsewhere, so zeros are multiplied in at the end. */
    bool empty = false;
    for (int32_t d = 0; d < rank; d++) {
        if (dim[d] < 0)
            return false;
        if (dim[d] == 0)
            empty = true;
        else if (!aprt_mul(bytes, dim[d], &bytes))
            return false;
    }
    *out = empty ? 0 : bytes;
    return bytes <= PTRDIFF_MAX;
}
