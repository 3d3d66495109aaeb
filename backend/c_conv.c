/* Kernels of class CONV: a table each, which the library reads when a device is prepared. */
#include "backend/emit.h"

#include <inttypes.h>
#include <math.h>

bool ap_backend_has_conv(const ap_program *p, const ap_target *target)
{
    for (uint32_t s = 0; s < p->stages.len; s++)
        for (uint32_t i = 0; i < p->stages.at[s]->instrs.len && (!target || target[s] == AP_TARGET_CPU); i++) {
            const ap_instr *in = &p->stages.at[s]->instrs.at[i];
            if (in->kind == AP_INSTR_CALL && p->stages.at[s]->kernels.at[in->kernel].kind == AP_KERNEL_CONV)
                return true;
        }
    return false;
}

static void print_number(ap_text *t, ap_dtype dtype, ap_scalar x)
{
    if (!ap_dtype_is_float(dtype))
        ap_text_addf(t, "%" PRId64, x.i);
    else if (isfinite(x.f))
        ap_text_add_hexfloat(t, x.f);
    else
        ap_text_add(t, isnan(x.f) ? "NAN" : x.f < 0 ? "-INFINITY" : "INFINITY");
}

static const char *step_name(uint16_t pw)
{
    switch (pw) {
    case AP_PW_RELU:
        return "RELU";
    case AP_PW_MUL:
        return "MUL";
    case AP_PW_MAX:
        return "MAX";
    case AP_PW_MIN:
        return "MIN";
    default:
        return "ADD";
    }
}

bool ap_emit_conv_knows(const ap_kernel *k)
{
    for (int i = 0; i < k->conv.nsteps; i++) {
        uint16_t pw = k->conv.step[i].pw;
        if (pw != AP_PW_RELU && pw != AP_PW_MUL && pw != AP_PW_MAX && pw != AP_PW_MIN && pw != AP_PW_ADD)
            return false;
    }
    return k->conv.nsteps == 0 || ap_dtype_is_float(k->conv.dtype);
}

static void print_step(ap_text *t, const ap_conv *c, const ap_conv_step *s)
{
    static const char *const other[] = {"NONE", "NUMBER", "OPERAND"};
    ap_text_addf(t, "        {APRT_CONV_%s, APRT_CONV_%s, ", step_name(s->pw), other[s->other]);
    if (s->other == AP_CONV_NUMBER)
        print_number(t, c->dtype, s->imm);
    else
        ap_text_add(t, "0");
    ap_text_addf(t, ", %d, ", s->other == AP_CONV_OPERAND ? (int)s->operand - 3 : 0);
    ap_emit_list(t, c->nspatial + 3, s->stride);
    ap_text_add(t, "},\n");
}

void ap_emit_conv_table(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    static const char *const name[3] = {".x", ".w", ".y"};
    const ap_conv *c = &k->conv;
    const int64_t *const stride[3] = {c->x, c->w, c->y};
    ap_text_addf(t, "const aprt_conv %s_k_%s = {\n    .dtype = %s,\n", e->opt->name, ap_name_str(e->ctx, k->name),
                 ap_emit_dtype(c->dtype));
    ap_text_addf(t, "    .n = %" PRId64 ",\n    .g = %" PRId64 ",\n    .m = %" PRId64 ",\n    .c = %" PRId64 ",\n",
                 c->n, c->g, c->m, c->c);
    ap_text_addf(t, "    .nspatial = %d,\n", c->nspatial);
    if (c->nspatial)
        ap_text_add(t, "    /* in, kernel, out, lo, stride, dilate, hole, flip */\n    .dim = {\n");
    for (int d = 0; d < c->nspatial; d++) {
        const ap_conv_dim *w = &c->dim[d];
        const int64_t dim[] = {c->in[d], c->kernel[d], c->out[d], w->lo, w->stride, w->dilate, w->hole, w->flip};
        ap_text_add(t, "        ");
        ap_emit_list(t, sizeof dim / sizeof dim[0], dim);
        ap_text_add(t, ",\n");
    }
    ap_text_add(t, c->nspatial ? "    },\n" : "");
    for (int i = 0; i < 3; i++) {
        ap_text_addf(t, "    %s = ", name[i]);
        ap_emit_list(t, c->nspatial + 3, stride[i]);
        ap_text_add(t, ",\n");
    }
    ap_text_addf(t, "    .nsteps = %d,\n", c->nsteps);
    if (c->nsteps)
        ap_text_add(t, "    .step = {\n");
    for (int i = 0; i < c->nsteps; i++)
        print_step(t, c, &c->step[i]);
    ap_text_add(t, c->nsteps ? "    },\n};\n" : "};\n");
}
