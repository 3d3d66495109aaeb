/* main.c, and the entrance of the back end. */
#include "backend/cuda/cuda.h"

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

/* Kernels of all stages, one of each name (ap_program_verify: they are the same). */
static void find_kernels(ap_emit *e)
{
    ap_arena *arena = &e->ctx->scratch;
    uint32_t total = 0, nstages = e->program->stages.len;
    ap_name most = 0;
    for (uint32_t s = 0; s < nstages; s++) {
        const ap_local *p = e->program->stages.at[s];
        total += p->kernels.len;
        for (uint32_t k = 0; k < p->kernels.len; k++)
            most = p->kernels.at[k].name > most ? p->kernels.at[k].name : most;
    }
    uint32_t *by_name = AP_NEW_ARRAY(arena, uint32_t, (size_t)most + 1); /* 1 + its number, or 0 */
    e->kernel = AP_NEW_ARRAY(arena, const ap_kernel *, total);
    e->kernel_of = AP_NEW_ARRAY(arena, uint32_t *, nstages);
    for (uint32_t s = 0; s < nstages; s++) {
        const ap_local *p = e->program->stages.at[s];
        e->kernel_of[s] = AP_NEW_ARRAY(arena, uint32_t, p->kernels.len);
        for (uint32_t k = 0; k < p->kernels.len; k++) {
            uint32_t *number = &by_name[p->kernels.at[k].name];
            if (!*number) {
                e->kernel[e->nkernels] = &p->kernels.at[k];
                *number = ++e->nkernels;
            }
            e->kernel_of[s][k] = *number - 1;
        }
    }
}

static ap_target stage_target(const ap_backend_options *opt, uint32_t stage)
{
    return opt->target ? opt->target[stage] : AP_TARGET_CPU;
}

ap_target ap_emit_target(const ap_emit *e)
{
    return stage_target(e->opt, e->stage);
}

bool ap_emit_has_target(const ap_emit *e, ap_target target)
{
    return ap_backend_has_target(e->program, e->opt->target, target);
}

bool ap_emit_kernel_is_for(const ap_emit *e, uint32_t index, ap_target target)
{
    for (uint32_t s = 0; s < e->program->stages.len; s++)
        for (uint32_t k = 0; k < e->program->stages.at[s]->kernels.len && stage_target(e->opt, s) == target; k++)
            if (e->kernel_of[s][k] == index)
                return true;
    return false;
}

bool ap_backend_has_target(const ap_program *p, const ap_target *target, ap_target t)
{
    for (uint32_t s = 0; s < p->stages.len; s++)
        if ((target ? target[s] : AP_TARGET_CPU) == t)
            return true;
    return false;
}

ap_status ap_emit_begin(ap_emit *e, ap_ctx *ctx, const ap_program *p, const ap_backend_options *opt)
{
    *e = (ap_emit){.ctx = ctx, .program = p, .opt = opt};
    AP_TRY(check_name(ctx, opt->name));
    for (uint32_t s = 0; s < p->stages.len; s++)
        AP_TRY(check_instrs(ctx, p->stages.at[s]));
    find_kernels(e);
    ap_emit_find_apart(e);
    return AP_OK;
}

ap_status ap_backend_c_emit(ap_ctx *ctx, const ap_program *p, const ap_backend_options *opt)
{
    ap_emit e;
    AP_TRY(ap_emit_begin(&e, ctx, p, opt));
    AP_TRY(ap_emit_header(&e));
    if (ap_emit_has_target(&e, AP_TARGET_CPU))
        AP_TRY(ap_emit_kernels(&e));
    if (ap_emit_has_target(&e, AP_TARGET_CUDA))
        AP_TRY(ap_cuda_emit_kernels(&e));
    AP_TRY(ap_emit_weights(&e));
    AP_TRY(ap_emit_program(&e));
    AP_TRY(ap_emit_main(&e));
    return ap_emit_build_files(&e);
}
