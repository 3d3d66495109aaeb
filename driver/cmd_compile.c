/* compile: model -> folder. The folder is made beside its final name and renamed when all is done; a supervisor
 * removes it if that never happens. */
#include "driver/commands.h"

#include "backend/backend.h"
#include "driver/jit.h"
#include "driver/plan_file.h"
#include "driver/process.h"
#include "driver/supervise.h"
#include "driver/targets.h"
#include "ir/base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_llvm(const ap_options *opt)
{
    return opt->codegen && strcmp(opt->codegen, "llvm") == 0;
}

static ap_status weights_form(ap_ctx *ctx, const ap_options *opt, ap_weights_form *out)
{
    static const char *const name[] = {"copy", "reference", "sliced"};
    *out = AP_WEIGHTS_REFERENCE; /* `run MODEL.onnx`: the folder goes when the program ends */
    if (opt->command == AP_CMD_RUN)
        return AP_OK;
    for (int i = 0; i < 3; i++)
        if (!opt->weights || strcmp(opt->weights, name[i]) == 0) {
            *out = (ap_weights_form)i;
            return AP_OK;
        }
    return ap_fail(ctx, AP_ERR_USAGE, 0, "--weights: 'copy', 'reference' or 'sliced', not '%s'", opt->weights);
}

ap_status ap_codegen_check(ap_ctx *ctx, const ap_options *opt)
{
    if (!opt->codegen || strcmp(opt->codegen, "c") == 0 || (is_llvm(opt) && ap_jit_is_there()))
        return AP_OK;
    return ap_fail(ctx, AP_ERR_USAGE, 0, "--codegen: this build supports %s, not '%s'",
                   ap_jit_is_there() ? "'c' and 'llvm'" : "'c' only", opt->codegen);
}

ap_status ap_compile_options(ap_ctx *ctx, const ap_options *opt)
{
    const char *name;
    AP_TRY(ap_target_check(ctx, opt));
    AP_TRY(ap_codegen_check(ctx, opt));
    ap_weights_form form;
    AP_TRY(weights_form(ctx, opt, &form));
    for (const char *c = opt->march; c && (*c || c == opt->march); c++)
        if (!isalnum((unsigned char)*c) && !strchr("._+-", *c ? *c : '/'))
            return ap_fail(ctx, AP_ERR_USAGE, 0, "--march: '%s' is not the name of a processor", opt->march);
    return ap_job_name(ctx, opt, &name);
}

static ap_status write_text(ap_ctx *ctx, const char *dir, const char *file, const char *text)
{
    const char *path = ap_name_str(ctx, ap_name_format(ctx, "%s/%s", dir, file));
    return ap_file_write(ctx, path, text, strlen(text));
}

static ap_status write_plan(ap_ctx *ctx, ap_job *job, const char *dir)
{
    const char *json, *text;
    AP_TRY(ap_plan_file_text(job, &json));
    AP_TRY(write_text(ctx, dir, "plan.json", json));
    AP_TRY(ap_job_report(job, &text));
    return write_text(ctx, dir, "plan.txt", text);
}

void ap_note_cluster(const ap_job *job)
{
    const ap_cluster *c = &job->request.plan.cluster;
    if (strcmp(c->name, "local") != 0 && !job->target) /* GPUs are what they were planned for */
        fprintf(stderr,
                "autopar: note: planned for %s; the program runs its %lld device(s) as threads of this machine, and "
                "predicted times are those of %s\n",
                c->name, (long long)ap_cluster_devices(c), c->name);
}

ap_status ap_compile_into(ap_ctx *ctx, ap_job *job, const char *dir)
{
    const char *name, *include = NULL, *lib = NULL, *slash = strrchr(job->opt->subject, '/');
    AP_TRY(ap_job_name(ctx, job->opt, &name));
    if (!job->opt->emit_only)
        AP_TRY(ap_find_runtime(ctx, &include, &lib));
    AP_TRY(ap_job_normalise(job));
    AP_TRY(ap_job_plan(job));
    AP_TRY(write_plan(ctx, job, dir));
    ap_program *program;
    AP_TRY(ap_job_lower(job, name, &program));
    const char *header = ap_name_str(
        ctx, ap_name_format(ctx, "Made by autopar %s from %s.", AP_VERSION, slash ? slash + 1 : job->opt->subject));
    ap_backend_options options = {.dir = dir, .name = name, .header = header, .target = job->target};
    AP_TRY(weights_form(ctx, job->opt, &options.weights));
    if (is_llvm(job->opt))
        AP_TRY(ap_jit_emit(ctx, job->opt, program, &options));
    else
        AP_TRY(ap_backend_c_emit(ctx, program, &options));
    if (!job->opt->quiet)
        ap_note_cluster(job);
    if (job->opt->emit_only)
        return AP_OK;
    const char *march = job->opt->march;
    const bool cuda = job->target && ap_backend_has_target(program, job->target, AP_TARGET_CUDA);
    const bool gpu = cuda && march && strncmp(march, "sm_", 3) == 0;
    return ap_backend_c_build(
        ctx, dir, name,
        &(ap_backend_toolchain){.include_dir = include,
                                .lib_dir = lib,
                                .march = gpu ? NULL : march,
                                .gpu = gpu ? march : NULL,
                                .objects = is_llvm(job->opt),
                                .convolutions = ap_backend_has_conv(program, job->target),
                                .cuda = cuda,
                                .cuda_only = cuda && !ap_backend_has_target(program, job->target, AP_TARGET_CPU)});
}

static void print_result(const ap_job *job, const char *dir)
{
    const ap_plan_result *r = &job->result.total;
    if (job->opt->quiet)
        return;
    int64_t devices = ap_cluster_devices(&job->request.plan.cluster);
    int64_t idle = ap_idle_devices(job->p, &job->request.plan.cluster);
    if (idle > 0)
        printf("%s: %lld of %lld devices (%lld idle), ", dir, (long long)(devices - idle), (long long)devices,
               (long long)idle);
    else
        printf("%s: %lld device(s), ", dir, (long long)devices);
    if (job->p->stages.len > 1)
        printf("%u stages, ", job->p->stages.len);
    if (job->p->microbatches > 1)
        printf("%d microbatches, ", job->p->microbatches);
    printf("predicted %.3f ms, %.3f MB per device, %.1f %% of contraction FLOPs sharded, gap %g\n",
           (double)r->cost_ps * 1e-9, (double)r->peak_bytes * 1e-6, 100 * r->sharded_flops_fraction,
           r->cost_ps > 0 ? (double)(r->cost_ps - r->bound_ps) / (double)r->cost_ps : 0.0);
}

/* The new folder takes the place of the old one, if any. */
static ap_status move_into_place(ap_ctx *ctx, const char *part, const char *dir, const char *old, bool replace)
{
    if (replace && rename(dir, old) != 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot be replaced: %s", dir, strerror(errno));
    if (rename(part, dir) != 0) {
        int e = errno;
        if (replace)
            rename(old, dir);
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot be made: %s", dir, strerror(e));
    }
    return replace ? ap_dir_remove(ctx, old) : AP_OK;
}

static bool is_empty_dir(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return d && n <= 2; /* "." and ".." */
}

/* Only what we made may be replaced: a folder of something else is lost for good. */
static ap_status check_existing(ap_ctx *ctx, const ap_options *opt, const char *dir, bool *out_exists)
{
    struct stat st;
    *out_exists = lstat(dir, &st) == 0;
    if (!*out_exists)
        return AP_OK;
    if (!S_ISDIR(st.st_mode))
        return ap_fail(ctx, AP_ERR_USAGE, 0, "%s: exists and is no folder", dir);
    bool ours = is_empty_dir(dir) || ap_plan_file_is_in(ctx, dir);
    if (opt->force && ours)
        return AP_OK;
    return ap_fail(ctx, AP_ERR_USAGE, 0, "%s: exists%s", dir,
                   ours ? " (--force replaces it)" : " and was not made by autopar, so it is not replaced");
}

/* Without trailing slashes; "." and ".." name no folder that we could make. */
static ap_status output_dir(ap_ctx *ctx, const ap_options *opt, const char **out)
{
    if (!opt->output)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "compile: -o DIR is missing");
    size_t n = strlen(opt->output);
    while (n > 1 && opt->output[n - 1] == '/')
        n--;
    *out = ap_arena_strndup(&ctx->arena, opt->output, n);
    const char *slash = strrchr(*out, '/'), *last = slash ? slash + 1 : *out;
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "-o: '%s' is not a folder that can be made", opt->output);
    return AP_OK;
}

ap_status ap_cmd_compile(ap_ctx *ctx, const ap_options *opt)
{
    const char *dir = NULL;
    AP_TRY(output_dir(ctx, opt, &dir));
    AP_TRY(ap_compile_options(ctx, opt));
    bool exists;
    AP_TRY(check_existing(ctx, opt, dir, &exists));
    const char *part = ap_name_str(ctx, ap_name_format(ctx, "%s.part%ld", dir, (long)getpid()));
    const char *old = ap_name_str(ctx, ap_name_format(ctx, "%s.old%ld", dir, (long)getpid()));
    bool worker;
    ap_status s = ap_supervise(ctx, &(ap_half_done){.part = part, .dir = dir, .old = old}, &worker);
    if (!worker)
        return s;
    ap_job job;
    s = ap_job_import(ctx, opt, false, &job);
    ap_dir_hold *hold = ap_dir_hold_make(ctx); /* removes it unless it comes into place */
    if (s == AP_OK) {
        hold->path = part;
        s = ap_dir_make(ctx, part);
    }
    if (s == AP_OK)
        s = ap_compile_into(ctx, &job, part);
    if (s == AP_OK)
        s = move_into_place(ctx, part, dir, old, exists);
    if (s == AP_OK && opt->json) {
        const char *text;
        s = ap_json_text(ctx, ap_plan_json(&job, true), &text);
        if (s == AP_OK)
            printf("%s\n", text);
    } else if (s == AP_OK) {
        print_result(&job, dir);
    }
    ap_job_deinit(&job);
    return s;
}
