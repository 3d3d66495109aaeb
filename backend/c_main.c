/* main.c, and the entrance of the back end. */
#include "backend/emit.h"

#include <ctype.h>

ap_status ap_emit_main(const ap_emit *e)
{
    ap_text t;
    ap_text_init(&t, &e->ctx->scratch);
    ap_emit_top(e, &t, "a program that reads inputs from files, runs the model and writes its outputs");
    ap_text_addf(&t, "#include \"%s.h\"\n\n#include <autopar_rt.h>\n\n", e->opt->name);
    ap_text_addf(&t, "int main(int argc, char **argv)\n{\n    return aprt_main(argc, argv, &%s_program);\n}\n",
                 e->opt->name);
    return ap_emit_file(e, "main.c", &t);
}

static ap_status check_name(ap_ctx *ctx, const char *name)
{
    bool good = isalpha((unsigned char)*name) || *name == '_';
    for (const char *s = name; *s; s++)
        good = good && (isalnum((unsigned char)*s) || *s == '_');
    if (!good)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "\"%s\" is no C identifier and cannot be the prefix of the model's API",
                       name);
    return AP_OK;
}

static ap_status check_instrs(ap_ctx *ctx, const ap_local *p)
{
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        const ap_instr *in = &p->instrs.at[i];
        if (in->kind == AP_INSTR_EXCHANGE && in->when != AP_WHEN_ALWAYS)
            return ap_fail(ctx, AP_ERR_BUG, in->loc, "an exchange that only some ranks take part in");
    }
    return AP_OK;
}

ap_status ap_backend_c_emit(ap_ctx *ctx, const ap_local *p, const ap_backend_options *opt)
{
    ap_emit e = {.ctx = ctx, .p = p, .opt = opt};
    AP_TRY(check_name(ctx, opt->name));
    AP_TRY(check_instrs(ctx, p));
    ap_emit_find_apart(&e);
    for (uint32_t k = 0; k < p->kernels.len; k++) {
        int64_t bytes = ap_emit_nest_scratch(&p->kernels.at[k]);
        e.scratch_bytes = bytes > e.scratch_bytes ? bytes : e.scratch_bytes;
    }
    AP_TRY(ap_emit_header(&e));
    AP_TRY(ap_emit_kernels(&e));
    AP_TRY(ap_emit_weights(&e));
    AP_TRY(ap_emit_program(&e));
    AP_TRY(ap_emit_main(&e));
    return ap_emit_build_files(&e);
}
