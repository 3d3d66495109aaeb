/* What follows a matrix product, as a function of its own that the product calls for tiles of C while they are in a
 * cache, and the record that it gets.
 *
 *     struct NAME_with_dense { const float *x0; float *c; int64_t i0; };
 *     static void NAME_after_dense(const void *with, int64_t row0, int64_t row1, int64_t column0, int64_t column1) */
#include "backend/emit.h"

#include <inttypes.h>

static bool uses_int(const ap_kernel *k, uint32_t number)
{
    for (uint32_t i = 0; i < k->nest.nsops; i++)
        if (k->nest.sop[i].kind == AP_SOP_INDEX && k->nest.sop[i].imm.i == (int64_t)number)
            return true;
    return false;
}

static bool uses_loop(const ap_kernel *k, int l)
{
    for (uint32_t i = 0; i < k->nest.nsops; i++) {
        const ap_sop *s = &k->nest.sop[i];
        bool memory = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE;
        if (s->kind == AP_SOP_INDEX ? s->loop_stride[l] != 0 : memory && k->operand[s->operand].stride[l] != 0)
            return true;
    }
    return false;
}

static void print_pointer(const ap_emit *e, ap_text *t, const ap_kernel *k, uint32_t i, bool restricted)
{
    (void)e;
    ap_text_addf(t, "    %s%s *%s", k->operand[i].written ? "" : "const ", ap_dtype_c(k->operand[i].dtype),
                 restricted ? "restrict " : "");
    ap_emit_operand(t, k, i);
}

void ap_emit_after(const ap_emit *e, ap_text *t, uint32_t index)
{
    const ap_kernel *k = e->kernel[index];
    const char *name = ap_name_str(e->ctx, k->name), *prefix = e->opt->name;
    ap_text_addf(t, "struct %s_with_%s {\n", prefix, name);
    for (uint32_t i = 2; i < k->noperands; i++) {
        print_pointer(e, t, k, i, false);
        ap_text_add(t, ";\n");
    }
    for (uint32_t i = 0; i < k->nints; i++)
        if (uses_int(k, i))
            ap_text_addf(t, "    int64_t n%" PRIu32 ";\n", i);
    for (int l = 0; l < k->gemm.nloops; l++)
        if (uses_loop(k, l))
            ap_text_addf(t, "    int64_t i%d;\n", l);
    ap_text_addf(t,
                 "};\n\nstatic void %s_after_%s(const void *with, int64_t row0, int64_t row1, int64_t column0, "
                 "int64_t column1)\n{\n    const struct %s_with_%s *w = with;\n",
                 prefix, name, prefix, name);
    for (uint32_t i = 2; i < k->noperands; i++) {
        print_pointer(e, t, k, i, e->apart[index]);
        ap_text_add(t, " = w->");
        ap_emit_operand(t, k, i);
        ap_text_add(t, ";\n");
    }
    for (uint32_t i = 0; i < k->nints; i++)
        if (uses_int(k, i))
            ap_text_addf(t, "    const int64_t n%" PRIu32 " = w->n%" PRIu32 ";\n", i, i);
    for (int l = 0; l < k->gemm.nloops; l++)
        if (uses_loop(k, l))
            ap_text_addf(t, "    const int64_t i%d = w->i%d;\n", l, l);
    ap_emit_tile(e, t, k);
    ap_text_add(t, "}\n\n");
}

void ap_emit_after_argument(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    const char *name = ap_name_str(e->ctx, k->name), *prefix = e->opt->name, *comma = "";
    ap_text_addf(t, "%s_after_%s, &(const struct %s_with_%s){", prefix, name, prefix, name);
    for (uint32_t i = 2; i < k->noperands; i++) {
        ap_text_add(t, comma);
        ap_emit_operand(t, k, i);
        comma = ", ";
    }
    for (uint32_t i = 0; i < k->nints; i++)
        if (uses_int(k, i))
            ap_text_addf(t, ", n%" PRIu32, i);
    for (int l = 0; l < k->gemm.nloops; l++)
        if (uses_loop(k, l))
            ap_text_addf(t, ", i%d", l);
    ap_text_add(t, "}");
}
