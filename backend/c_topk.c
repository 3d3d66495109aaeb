/* Kernels that take the first k elements of rows: loops around a call of the runtime. */
#include "backend/emit.h"

#include <inttypes.h>

static void print_operand(ap_text *t, const ap_kernel *k, uint32_t i)
{
    ap_text_add(t, ", ");
    ap_emit_operand(t, k, i);
    for (int l = 0; l < k->nest.nouter; l++) {
        int64_t s = k->operand[i].stride[l];
        if (s != 0)
            ap_text_addf(t, " %c %" PRId64 "*i%d", s < 0 ? '-' : '+', s < 0 ? -s : s, l);
    }
    ap_text_addf(t, ", %" PRId64, k->topk.stride[i]);
}

void ap_emit_rows(ap_text *t, const ap_kernel *k)
{
    const ap_topk *row = &k->topk;
    int depth = 1;
    for (int l = 0; l < k->nest.nouter; l++) {
        ap_text_addf(t, "%*sfor (int64_t i%d = 0; i%d < ", 4 * depth++, "", l, l);
        if (k->nest.turns[l])
            ap_text_addf(t, "n%" PRIu32, k->nest.turns[l] - 1);
        else
            ap_text_addf(t, "%" PRId64, k->nest.extent[l]);
        ap_text_addf(t, "; i%d++)\n", l);
    }
    ap_text_addf(t, "%*saprt_topk_%s(%" PRId64 ", %" PRId64 ", %d", 4 * depth, "", ap_dtype_str(k->operand[0].dtype),
                 row->n, row->k, row->largest);
    for (uint32_t i = 0; i < 3; i++)
        print_operand(t, k, i);
    ap_text_add(t, ");\n");
}
