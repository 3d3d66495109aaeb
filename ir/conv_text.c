/* The window of a convolution as text, in modules and in local programs: per spatial dimension `LO:HI` (padding, may be
 * negative), then what differs from 1: `stride S`, `dilate D`, `hole H`, and `flip`; `-` when nothing is said. */
#include "ir/parse.h"
#include "ir/print.h"

#include <inttypes.h>

void ap_print_conv_dim(const ap_conv_dim *d, ap_text *out)
{
    bool padded = d->lo || d->hi, plain = d->stride == 1 && d->dilate == 1 && d->hole == 1 && !d->flip;
    if (!padded && plain)
        ap_text_add(out, "-");
    if (padded || !plain)
        ap_text_addf(out, "%" PRId64 ":%" PRId64, d->lo, d->hi);
    if (d->stride != 1)
        ap_text_addf(out, " stride %" PRId64, d->stride);
    if (d->dilate != 1)
        ap_text_addf(out, " dilate %" PRId64, d->dilate);
    if (d->hole != 1)
        ap_text_addf(out, " hole %" PRId64, d->hole);
    if (d->flip)
        ap_text_add(out, " flip");
}

void ap_print_conv(const ap_shape_info *operand, const ap_conv_attr *a, ap_text *out)
{
    ap_text_add(out, " [");
    for (int d = 0; a && operand && d < operand->rank - 3; d++) {
        ap_text_add(out, d ? "," : "");
        ap_print_conv_dim(&a->dim[d], out);
    }
    ap_text_add(out, "]");
}

static ap_status parse_factor(ap_lex *l, const char *word, int64_t *out)
{
    *out = 1;
    return ap_lex_accept_word(l, word) ? ap_lex_range(l, "a step", 1, INT32_MAX, out) : AP_OK;
}

ap_status ap_parse_conv_dim(ap_lex *l, ap_conv_dim *out)
{
    *out = (ap_conv_dim){.stride = 1, .dilate = 1, .hole = 1};
    ap_lex_skip(l);
    size_t at = l->pos;
    if (ap_lex_accept(l, "-")) { /* nothing, or the sign of a padding */
        int c = ap_lex_peek(l);
        if (c < '0' || c > '9')
            return AP_OK;
        l->pos = at;
    }
    AP_TRY(ap_lex_range(l, "a padding", -INT32_MAX, INT32_MAX, &out->lo));
    AP_TRY(ap_lex_expect(l, ":"));
    AP_TRY(ap_lex_range(l, "a padding", -INT32_MAX, INT32_MAX, &out->hi));
    AP_TRY(parse_factor(l, "stride", &out->stride));
    AP_TRY(parse_factor(l, "dilate", &out->dilate));
    AP_TRY(parse_factor(l, "hole", &out->hole));
    out->flip = ap_lex_accept_word(l, "flip");
    return AP_OK;
}

ap_status ap_parse_conv(ap_lex *l, int rank, ap_conv_attr *out)
{
    AP_TRY(ap_lex_expect(l, "["));
    if (rank < 3)
        return ap_lex_error(l, "a convolution needs a batch, groups and channels: its operand has %d dimensions", rank);
    for (int d = 0; d < rank - 3; d++) {
        if (d)
            AP_TRY(ap_lex_expect(l, ","));
        AP_TRY(ap_parse_conv_dim(l, &out->dim[d]));
    }
    return ap_lex_expect(l, "]");
}
