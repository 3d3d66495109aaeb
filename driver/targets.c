/* See the header. */
#include "driver/targets.h"

#include "driver/process.h"

#include <string.h>
#include <unistd.h>

bool ap_target_is_cuda(const ap_options *opt)
{
    return opt->target && strcmp(opt->target, "cuda") == 0;
}

ap_status ap_target_check(ap_ctx *ctx, const ap_options *opt)
{
    const char *include, *lib;
    if (opt->target && strcmp(opt->target, "cpu") != 0 && !ap_target_is_cuda(opt))
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--target: 'cpu' or 'cuda', not '%s'", opt->target);
    if (!ap_target_is_cuda(opt))
        return AP_OK;
    if (opt->codegen && strcmp(opt->codegen, "c") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--target cuda: the code generator is nvcc, not '%s'", opt->codegen);
    if (opt->emit_only)
        return AP_OK;
    AP_TRY(ap_find_runtime(ctx, &include, &lib));
    const char *archive = ap_name_str(ctx, ap_name_format(ctx, "%s/libautopar_rt_cuda.a", lib));
    if (access(archive, R_OK) != 0)
        return ap_fail(
            ctx, AP_ERR_ENV, 0,
            "--target cuda: this autopar was built without CUDA (%s is missing); with --emit-only the sources "
            "are written",
            archive);
    if (!ap_backend_cuda_home(ctx))
        return ap_fail(ctx, AP_ERR_ENV, 0,
                       "--target cuda: there is no nvcc in $CUDA_HOME, $CUDA_PATH, $PATH, /usr/local/cuda; with "
                       "--emit-only the sources are written");
    return AP_OK;
}

ap_status ap_target_cluster(ap_ctx *ctx, int64_t devices, ap_cluster *out)
{
    if (devices > 8)
        return ap_fail(ctx, AP_ERR_USAGE, 0,
                       "--devices: a host has at most 8 GPUs, not %lld; --cluster names several hosts",
                       (long long)devices);
    return ap_cluster_from_preset(ctx, ap_name_str(ctx, ap_name_format(ctx, "dgx-h100:1x%lld", (long long)devices)),
                                  out);
}

ap_status ap_targets_find(const ap_job *job, const ap_target **out)
{
    const ap_cluster *c = &job->request.plan.cluster;
    ap_target *target = AP_NEW_ARRAY(&job->ctx->arena, ap_target, job->p->stages.len);
    bool any = false;
    *out = NULL;
    for (uint32_t s = 0; s < job->p->stages.len && ap_target_is_cuda(job->opt); s++) {
        const ap_stage *stage = &job->p->stages.at[s];
        const ap_mesh_info *mesh = ap_stage_mesh(stage);
        const bool cpu = ap_cluster_at(c, mesh->first_rank)->cpu;
        for (int32_t r = 1; r < ap_mesh_ranks(mesh); r++)
            if (ap_cluster_at(c, mesh->first_rank + r)->cpu != cpu)
                return ap_fail(
                    job->ctx, AP_ERR_USAGE, 0,
                    "--target cuda: stage %u (\"%s\") has processors and GPUs, ranks %d to %d; more --stages, "
                    "or a --pin of stages, may keep them apart",
                    s, ap_name_str(job->ctx, stage->name), mesh->first_rank,
                    mesh->first_rank + ap_mesh_ranks(mesh) - 1);
        target[s] = cpu ? AP_TARGET_CPU : AP_TARGET_CUDA;
        any = any || !cpu;
    }
    if (ap_target_is_cuda(job->opt) && !any)
        return ap_fail(job->ctx, AP_ERR_USAGE, 0, "--target cuda: the devices of %s are processors", c->name);
    *out = any ? target : NULL;
    return AP_OK;
}

const ap_lower_options *ap_targets_lowering(ap_ctx *ctx, const ap_target *target, uint32_t nstages)
{
    ap_lower_options *all = AP_NEW_ARRAY(&ctx->arena, ap_lower_options, nstages);
    for (uint32_t s = 0; s < nstages; s++)
        all[s] = target && target[s] == AP_TARGET_CUDA ? ap_lower_cuda() : ap_lower_cpu();
    return all;
}

void ap_targets_rename(ap_program *p, const ap_target *target)
{
    if (!ap_backend_has_target(p, target, AP_TARGET_CPU) || !ap_backend_has_target(p, target, AP_TARGET_CUDA))
        return;
    for (uint32_t s = 0; s < p->stages.len; s++)
        for (uint32_t k = 0; k < p->stages.at[s]->kernels.len && target[s] == AP_TARGET_CUDA; k++) {
            ap_kernel *kernel = &p->stages.at[s]->kernels.at[k];
            kernel->name = ap_name_format(p->ctx, "gpu_%s", ap_name_str(p->ctx, kernel->name));
        }
}
