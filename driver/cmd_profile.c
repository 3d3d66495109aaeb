/* profile: measures the CPUs or GPUs of this machine and writes a cluster file. All is made in a temporary folder,
 * which a supervisor removes whatever happens. */
#include "driver/commands.h"

#include "driver/plan_file.h"
#include "driver/process.h"
#include "driver/profile.h"
#include "driver/supervise.h"
#include "driver/targets.h"
#include "ir/base/file.h"
#include "passes/pipe/lower.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROFILED = 64, MAX_GPUS = 8 };

/* The first number of a file behind `key`; INT64_MAX when it is not there. */
static int64_t number_in(const char *path, const char *key)
{
    char line[256];
    int64_t found = INT64_MAX;
    FILE *f = fopen(path, "r");
    while (f && found == INT64_MAX && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) {
            char *end;
            long long v = strtoll(line + strlen(key), &end, 10);
            if (end != line + strlen(key) && v > 0)
                found = v;
        }
    if (f)
        fclose(f);
    return found;
}

int64_t ap_profile_memory(void)
{
    int64_t kib = number_in("/proc/meminfo", "MemTotal:"), all = kib == INT64_MAX ? kib : ap_sat_mul(kib, 1024);
    int64_t group = ap_min_i64(number_in("/sys/fs/cgroup/memory.max", ""),
                               number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", ""));
    return ap_min_i64(all, group);
}

static void show_progress(void *user, const char *what, int done, int of)
{
    (void)user;
    if (*what)
        fprintf(stderr, "\rautopar: measuring: %s %d of %d\033[K", what, done + 1, of);
    else
        fputs("\r\033[K", stderr);
    fflush(stderr);
}

/* Before a minute is spent on it. */
static ap_status check_output(ap_ctx *ctx, const char *path)
{
    if (!path)
        return AP_OK;
    size_t n = strlen(path);
    const char *slash = strrchr(path, '/');
    bool yaml = (n > 5 && strcmp(path + n - 5, ".yaml") == 0) || (n > 4 && strcmp(path + n - 4, ".yml") == 0);
    if (!slash && !yaml)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "-o: --cluster takes '%s' for the name of a machine; call it '%s.yaml'",
                       path, path);
    const char *folder = slash ? ap_arena_strndup(&ctx->arena, path, (size_t)(slash - path) + 1) : ".";
    if (access(folder, W_OK) != 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot be written: %s", path, strerror(errno));
    return AP_OK;
}

/* ---- results ---- */

/* C is what `compile` makes, and a cluster is there to plan what is compiled. */
static bool is_llvm(const ap_options *opt)
{
    return opt->codegen && strcmp(opt->codegen, "llvm") == 0;
}

static const char *comment_of(ap_ctx *ctx, const ap_profile *p, const ap_options *opt, const ap_cluster *c)
{
    ap_text t;
    const bool gpus = ap_target_is_cuda(opt);
    int count[AP_PROFILE_COUNT] = {0};
    ap_text_init(&t, &ctx->arena);
    for (uint32_t i = 0; i < p->ncases; i++)
        count[p->at[i].kind]++;
    ap_text_addf(&t, "Measured by autopar %s on this machine's %s, %d device(s) working at the same time%s%s:\n",
                 AP_VERSION, gpus ? "GPUs" : "CPUs", c->devices_per_host, is_llvm(opt) ? ", kernels by LLVM" : "",
                 opt->quick ? ", quickly" : "");
    ap_text_addf(&t, "%d products, %d convolutions, %d passes over memory, %d row kernels, %d launches, %d exchanges",
                 count[AP_PROFILE_PRODUCT], count[AP_PROFILE_CONV], count[AP_PROFILE_MEMORY], count[AP_PROFILE_ROWS],
                 count[AP_PROFILE_LAUNCH], count[AP_PROFILE_EXCHANGE]);
    if (gpus)
        ap_text_addf(&t, ", %d copies.", count[AP_PROFILE_COPY]);
    else
        ap_text_add(&t, ".\nThe name is that of the built-in description: programs for it run here.");
    return ap_text_str(&t);
}

/* `program`: NULL of GPUs, whose cases belong to none. */
static void price(ap_profile *p, ap_program *program, const ap_cluster *c)
{
    for (uint32_t i = 0; i < p->ncases && !program; i++)
        ap_profile_cuda_price(c, &p->at[i]);
    if (!program)
        return;
    ap_program_price(program, c);
    for (uint32_t i = 0; i < p->ncases; i++)
        p->at[i].predicted_ps = program->stages.at[0]->instrs.at[i].picoseconds;
}

static ap_status print_json(ap_ctx *ctx, const ap_profile *p, const char *file)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "cluster", file);
    cJSON *cases = cJSON_AddArrayToObject(root, "cases");
    for (uint32_t i = 0; i < p->ncases; i++) {
        const ap_profile_case *k = &p->at[i];
        if (k->kind == AP_PROFILE_FILL)
            continue;
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(cases, o);
        cJSON_AddStringToObject(o, "kind", ap_profile_kind_str(k->kind));
        cJSON_AddStringToObject(o, "type", ap_dtype_str(k->work.dtype == AP_DTYPE_NONE ? AP_F32 : k->work.dtype));
        cJSON_AddStringToObject(o, "name", k->name);
        cJSON_AddNumberToObject(o, "flops", (double)(k->work.flops + k->work.simple + k->work.functions));
        cJSON_AddNumberToObject(o, "bytes", (double)k->bytes);
        cJSON_AddNumberToObject(o, "measured_us", k->seconds * 1e6);
        cJSON_AddNumberToObject(o, "predicted_us", (double)k->predicted_ps * 1e-6);
        if (k->seconds > 0)
            cJSON_AddNumberToObject(o, "relative_error", (double)k->predicted_ps * 1e-12 / k->seconds - 1);
    }
    const char *text;
    AP_TRY(ap_json_text(ctx, root, &text));
    printf("%s\n", text);
    return AP_OK;
}

static ap_status measure_cpus(ap_ctx *ctx, const ap_profile_options *how, ap_profile *out, ap_program **out_program,
                              ap_cluster *out_base)
{
    AP_TRY(ap_profile_measure(ctx, how, out, out_program));
    ap_cluster_local(how->devices, out_base);
    int64_t memory = ap_profile_memory();
    if (memory < INT64_MAX)
        out_base->memory_bytes = ap_max_i64(memory / how->devices, 1);
    return AP_OK;
}

static ap_status profile(ap_ctx *ctx, const ap_options *opt, const char *dir, int32_t devices)
{
    ap_profile p;
    ap_program *program = NULL;
    ap_cluster c, again;
    ap_text text;
    const ap_profile_options how = {.dir = dir,
                                    .devices = devices,
                                    .quick = opt->quick,
                                    .jit = is_llvm(opt),
                                    .progress = !opt->quiet && isatty(STDERR_FILENO) ? show_progress : NULL};
    AP_TRY(ap_target_is_cuda(opt) ? ap_profile_cuda_measure(ctx, &how, &p, &c)
                                  : measure_cpus(ctx, &how, &p, &program, &c));
    ap_profile_fit(&ctx->scratch, &p, &c);
    ap_text_init(&text, &ctx->arena);
    ap_profile_file(&c, comment_of(ctx, &p, opt, &c), &text);
    /* what the file says, not what we meant */
    AP_TRY(ap_cluster_from_text(ctx, opt->output ? opt->output : "profile", ap_text_str(&text), text.len, &again));
    price(&p, program, &again);
    if (opt->output)
        AP_TRY(ap_file_write(ctx, opt->output, ap_text_str(&text), text.len));
    if (opt->json)
        return print_json(ctx, &p, ap_text_str(&text));
    if (!opt->output)
        fputs(ap_text_str(&text), stdout);
    return AP_OK;
}

/* 0: all GPUs that there are. */
static ap_status count_devices(ap_ctx *ctx, const ap_options *opt, int64_t *out)
{
    const bool gpus = ap_target_is_cuda(opt);
    if (opt->target && !gpus && strcmp(opt->target, "cpu") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--target: 'cpu' or 'cuda', not '%s'", opt->target);
    if (gpus && opt->codegen)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--codegen does not belong to --target cuda");
    *out = gpus ? 0 : ap_min_i64(ap_max_i64(sysconf(_SC_NPROCESSORS_ONLN), 1), MAX_PROFILED);
    return opt->devices ? ap_option_int(ctx, "devices", opt->devices, 1, gpus ? MAX_GPUS : MAX_PROFILED, out) : AP_OK;
}

ap_status ap_cmd_profile(ap_ctx *ctx, const ap_options *opt)
{
    int64_t devices;
    const char *dir = NULL;
    bool worker;
    AP_TRY(count_devices(ctx, opt, &devices));
    AP_TRY(ap_codegen_check(ctx, opt));
    AP_TRY(check_output(ctx, opt->output));
    AP_TRY(ap_temp_dir(ctx, &dir));
    ap_status s = ap_supervise(ctx, &(ap_half_done){.part = dir}, &worker);
    return worker ? profile(ctx, opt, dir, (int32_t)devices) : s;
}
