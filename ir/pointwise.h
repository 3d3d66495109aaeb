/* The pointwise operators by themselves, for readers that know scalars and not graphs (back ends, nests). */
#ifndef AP_IR_POINTWISE_H
#define AP_IR_POINTWISE_H

#include "ir/dtype.h"

typedef enum ap_pointwise {
#define POINTWISE(E, ...) AP_PW_##E,
#include "ir/op/pointwise.def"
#undef POINTWISE
    AP_PW_COUNT
} ap_pointwise;

const char *ap_pointwise_str(ap_pointwise p);
int ap_pointwise_nin(ap_pointwise p);
bool ap_pointwise_from_str(const char *s, ap_pointwise *out);

/* The value of the formula, computed in f64 or i64 and rounded to `dtype` (that of the result;
 * `operands` is that of the operands). Floats travel in .f, integers and bools in .i. */
typedef union ap_scalar {
    double f;
    int64_t i;
} ap_scalar;
ap_scalar ap_pointwise_eval(ap_pointwise p, ap_dtype operands, ap_dtype result, const ap_scalar *x);
/* Rounds to the precision of a float type, or wraps to the width of an integer type. */
ap_scalar ap_scalar_round(ap_dtype t, ap_scalar x);
/* Reading and writing one element in memory (f16 and bf16 are converted). */
ap_scalar ap_scalar_load(ap_dtype t, const void *p);
void ap_scalar_store(ap_dtype t, void *p, ap_scalar x);

#endif
