/* Kernels that take the first k elements of rows, as text, and what may be wrong with them. */
#include "ir/local_text.h"

#include <inttypes.h>

/* `largest 4 of 32 strides [1,1,1]` */
void ap_local_print_topk(const ap_topk *k, ap_text *out)
{
    ap_text_addf(out, "  %s %" PRId64 " of %" PRId64 " strides ", k->largest ? "largest" : "smallest", k->k, k->n);
    ap_local_print_list(out, 3, k->stride);
    ap_text_add(out, "\n");
}

ap_status ap_local_parse_topk(ap_lex *l, ap_topk *out)
{
    uint8_t given;
    out->largest = ap_lex_accept_word(l, "largest");
    if (!out->largest)
        AP_TRY(ap_lex_expect_word(l, "smallest"));
    AP_TRY(ap_lex_range(l, "a number of elements", 1, INT64_MAX, &out->k));
    AP_TRY(ap_lex_expect_word(l, "of"));
    AP_TRY(ap_lex_range(l, "a number of elements", 1, INT64_MAX, &out->n));
    AP_TRY(ap_lex_expect_word(l, "strides"));
    AP_TRY(ap_local_parse_list(l, "strides", 3, out->stride, &given));
    if (given != 3)
        return ap_lex_error(l, "%d strides for 3 operands", given);
    return ap_lex_expect(l, "}");
}

const char *ap_local_topk_fault(const ap_kernel *k)
{
    const ap_kernel_operand *o = k->operand;
    if (k->noperands != 3 || o[0].written || !o[1].written || !o[2].written)
        return "it reads one operand and writes two";
    if (o[1].dtype != o[0].dtype || o[2].dtype != AP_I64)
        return "its results are not of the operand's type and i64";
    if (!ap_dtype_is_float(o[0].dtype) && !ap_dtype_is_int(o[0].dtype))
        return "its elements have no order";
    if (k->nest.ninner || k->nest.nsections || k->nest.nsops)
        return "it has inner loops or operations";
    return k->topk.k < 1 || k->topk.k > k->topk.n ? "it takes more elements than there are, or none" : NULL;
}
