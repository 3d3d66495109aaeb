/* Element types. One row each: name in the text form, bytes, ONNX TensorProto.DataType, C type. */
#ifndef AP_IR_DTYPE_H
#define AP_IR_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/*       enum  text   bytes onnx  C type */
#define AP_DTYPES(X)                                                                                                   \
    X(F32, "f32", 4, 1, "float")                                                                                       \
    X(U8, "u8", 1, 2, "uint8_t")                                                                                       \
    X(I8, "i8", 1, 3, "int8_t")                                                                                        \
    X(U16, "u16", 2, 4, "uint16_t")                                                                                    \
    X(I16, "i16", 2, 5, "int16_t")                                                                                     \
    X(I32, "i32", 4, 6, "int32_t")                                                                                     \
    X(I64, "i64", 8, 7, "int64_t")                                                                                     \
    X(BOOL, "bool", 1, 9, "uint8_t")                                                                                   \
    X(F16, "f16", 2, 10, "uint16_t")                                                                                   \
    X(F64, "f64", 8, 11, "double")                                                                                     \
    X(U32, "u32", 4, 12, "uint32_t")                                                                                   \
    X(U64, "u64", 8, 13, "uint64_t")                                                                                   \
    X(BF16, "bf16", 2, 16, "uint16_t")

typedef enum ap_dtype {
    AP_DTYPE_NONE,
#define X(E, text, bytes, onnx, c) AP_##E,
    AP_DTYPES(X)
#undef X
        AP_DTYPE_COUNT
} ap_dtype;

const char *ap_dtype_str(ap_dtype t);
const char *ap_dtype_c(ap_dtype t); /* bool is uint8_t holding 0 or 1 */
int ap_dtype_bytes(ap_dtype t);
int ap_dtype_onnx(ap_dtype t);
bool ap_dtype_from_str(const char *s, ap_dtype *out);
bool ap_dtype_from_onnx(int onnx, ap_dtype *out);
bool ap_dtype_is_float(ap_dtype t); /* f16, bf16, f32, f64 */
bool ap_dtype_is_int(ap_dtype t);   /* integers, bool not counted */

#endif
