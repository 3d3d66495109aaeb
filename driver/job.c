/* Import, normalise, plan, lower: the road of DESIGN §3 as the commands walk it. */
#include "driver/job.h"

#include "backend/backend.h"
#include "driver/plan_file.h"
#include "frontend/tensor.h"
#include "ir/base/file.h"
#include "ir/base/text.h"
#include "ir/text_form.h"
#include "passes/plan.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

ap_status ap_file_digest(ap_ctx *ctx, const char *path, char out[33])
{
    ap_file f;
    AP_TRY(ap_file_map(ctx, path, &f));
    XXH128_hash_t h = XXH3_128bits(f.data, (size_t)f.size);
    ap_file_unmap(&f);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    return AP_OK;
}

/* NAME.h would stand for a header of the C library, which includes some of these itself, or for one of our own; aprt is
 * the prefix of the runtime. */
static bool is_header(const char *name)
{
    static const char *const headers[] = {
        "alloca",  "aprt",   "assert",      "autopar_rt", "complex",   "ctype",   "dirent", "dlfcn",     "elf",
        "endian",  "errno",  "fcntl",       "features",   "fenv",      "float",   "getopt", "glob",      "inttypes",
        "kernels", "libgen", "limits",      "link",       "locale",    "malloc",  "math",   "memory",    "netdb",
        "omp",     "paths",  "poll",        "pthread",    "regex",     "sched",   "search", "semaphore", "setjmp",
        "signal",  "spawn",  "stdalign",    "stdarg",     "stdatomic", "stdbool", "stdc",   "stddef",    "stdint",
        "stdio",   "stdlib", "stdnoreturn", "string",     "strings",   "syscall", "syslog", "termios",   "tgmath",
        "threads", "time",   "uchar",       "unistd",     "values",    "wchar",   "wctype"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (strcmp(headers[i], name) == 0)
            return true;
    return false;
}

ap_status ap_job_name(ap_ctx *ctx, const ap_options *opt, const char **out)
{
    const char *s = opt->name;
    if (!s) {
        const char *slash = strrchr(opt->subject, '/');
        char *name = ap_arena_strdup(&ctx->arena, slash ? slash + 1 : opt->subject);
        char *dot = strrchr(name, '.');
        if (dot && dot != name)
            *dot = 0;
        if (strlen(name) > 60)
            name[60] = 0;
        for (char *c = name; *c; c++)
            if (!isalnum((unsigned char)*c))
                *c = '_';
        s = isdigit((unsigned char)*name) || !*name || is_header(name)
                ? ap_name_str(ctx, ap_name_format(ctx, "m%s", name))
                : name;
    }
    bool ok = *s && !isdigit((unsigned char)*s);
    for (const char *c = s; *c; c++)
        ok = ok && (isalnum((unsigned char)*c) || *c == '_');
    if (!ok || strlen(s) > 64)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--name: '%s' is not a C identifier of at most 64 characters", s);
    if (is_header(s))
        return ap_fail(ctx, AP_ERR_USAGE, 0,
                       "--name: '%s' is taken: a header of the C library or a part of the program", s);
    *out = s;
    return AP_OK;
}

/* ---- how to plan ---- */

enum { MAX_MESH_AXES = 3 };

static bool is_axis_name(const char *s, size_t n)
{
    bool ok = n > 0 && n <= 32 && (isalpha((unsigned char)*s) || *s == '_');
    for (size_t i = 0; i < n; i++)
        ok = ok && (isalnum((unsigned char)s[i]) || s[i] == '_');
    return ok && !(n == 2 && strncmp(s, "mb", 2) == 0); /* the axis of microbatches */
}

static ap_status add_axis(ap_ctx *ctx, ap_mesh_info *mesh, const char *name, size_t n, const char *size)
{
    if (mesh->naxes == MAX_MESH_AXES)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--mesh: at most %d axes", MAX_MESH_AXES);
    if (!is_axis_name(name, n))
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--mesh: '%.*s' is not a name for an axis", (int)n, name);
    ap_name id = ap_name_make_n(ctx, name, n);
    for (int a = 0; a < mesh->naxes; a++)
        if (mesh->axis_name[a] == id)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "--mesh: two axes are named '%s'", ap_name_str(ctx, id));
    int64_t v;
    AP_TRY(ap_option_int(ctx, "mesh", size, 1, AP_CLUSTER_MAX_DEVICES, &v));
    mesh->axis_name[mesh->naxes] = id;
    mesh->axis_size[mesh->naxes++] = (int32_t)v;
    return AP_OK;
}

/* AxB[xC], or name=A,name=B */
static ap_status read_axes(ap_ctx *ctx, const char *text, ap_mesh_info *mesh)
{
    bool named = strchr(text, '=') != NULL;
    char *part = ap_arena_strdup(&ctx->arena, text);
    for (char *next; part; part = next) {
        next = strchr(part, named ? ',' : 'x');
        if (next)
            *next++ = 0;
        char *eq = strchr(part, '=');
        if (named && !eq)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "--mesh: '%s' is not NAME=SIZE", part);
        AP_TRY(named ? add_axis(ctx, mesh, part, (size_t)(eq - part), eq + 1)
                     : add_axis(ctx, mesh, &"xyz?"[mesh->naxes], 1, part));
    }
    return AP_OK;
}

/* `auto` is one axis inside a host, and one over hosts and one inside where both are there: a plan can join the two
 * on one dimension, so nothing is lost, and each has links of one speed. */
static ap_status read_mesh(ap_ctx *ctx, const char *text, const ap_cluster *c, ap_mesh_info *out)
{
    int64_t devices = (int64_t)c->hosts * c->devices_per_host, product = 1;
    *out = (ap_mesh_info){.name = ap_name_make(ctx, "m")};
    if (!text || strcmp(text, "auto") == 0) {
        bool two = c->hosts > 1 && c->devices_per_host > 1;
        out->naxes = two ? 2 : 1;
        out->axis_name[0] = ap_name_make(ctx, "x");
        out->axis_size[0] = two ? c->hosts : (int32_t)devices;
        if (two) {
            out->axis_name[1] = ap_name_make(ctx, "y");
            out->axis_size[1] = c->devices_per_host;
        }
        return AP_OK;
    }
    AP_TRY(read_axes(ctx, text, out));
    for (int a = 0; a < out->naxes; a++)
        product = ap_sat_mul(product, out->axis_size[a]);
    if (product != devices)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--mesh: '%s' has %lld devices, %lld are there", text, (long long)product,
                       (long long)devices);
    return AP_OK;
}

ap_status ap_plan_is_given(ap_ctx *ctx, const ap_options *opt)
{
    const char *const decided[] = {opt->devices, opt->cluster,    opt->mesh,   opt->memory, opt->pin,
                                   opt->split,   opt->time_limit, opt->budget, opt->threads};
    for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
        if (decided[i])
            return ap_fail(ctx, AP_ERR_USAGE, 0,
                           "a plan is used as it is: no --devices, --cluster, --mesh, --memory, --pin, --split, "
                           "--time-limit, --budget, --threads beside it");
    return AP_OK;
}

/* A plan may be for more devices than a program can have. */
static ap_status check_devices(ap_job *job)
{
    const ap_cluster *c = &job->planning.cluster;
    int64_t devices = (int64_t)c->hosts * c->devices_per_host;
    if ((job->opt->command == AP_CMD_COMPILE || job->opt->command == AP_CMD_RUN) && devices > AP_PROGRAM_MAX_DEVICES)
        return ap_fail(job->ctx, AP_ERR_USAGE, 0,
                       "a program has at most %d devices, not %lld (`autopar plan` plans for more)",
                       AP_PROGRAM_MAX_DEVICES, (long long)devices);
    return AP_OK;
}

static ap_status read_planning(ap_job *job)
{
    ap_ctx *ctx = job->ctx;
    const ap_options *opt = job->opt;
    ap_plan_options *p = &job->planning;
    int64_t devices = 1, threads = sysconf(_SC_NPROCESSORS_ONLN);
    if (opt->plan)
        AP_TRY(ap_plan_is_given(ctx, opt));
    if (opt->devices && opt->cluster)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--devices and --cluster exclude each other");
    if (opt->devices)
        AP_TRY(ap_option_int(ctx, "devices", opt->devices, 1, 1024, &devices));
    if (opt->cluster) {
        AP_TRY(ap_cluster_find(ctx, opt->cluster, &p->cluster));
    } else {
        ap_cluster_local((int32_t)devices, &p->cluster);
    }
    AP_TRY(check_devices(job));
    AP_TRY(read_mesh(ctx, opt->mesh, &p->cluster, &p->mesh));
    if (opt->memory)
        AP_TRY(ap_option_bytes(ctx, "memory", opt->memory, &p->memory));
    if (opt->time_limit)
        AP_TRY(ap_option_seconds(ctx, "time-limit", opt->time_limit, &p->time_limit));
    if (opt->budget)
        AP_TRY(ap_option_int(ctx, "budget", opt->budget, 1, INT64_MAX / 2, &p->budget));
    if (opt->threads)
        AP_TRY(ap_option_int(ctx, "threads", opt->threads, 1, 256, &threads));
    p->threads = (uint32_t)ap_max_i64(threads, 1);
    p->problem_path = opt->dump_problem;
    if (opt->split && strcmp(opt->split, "force") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--split: 'force' is the only choice, not '%s'", opt->split);
    p->split_force = opt->split != NULL;
    if (opt->pin) {
        p->pin_file = opt->pin;
        ap_pins pins;
        AP_TRY(ap_pins_read(ctx, opt->pin, &pins));
        p->npins = pins.n;
        p->pin = pins.pin;
    }
    return AP_OK;
}

/* ---- import ---- */

static ap_status read_dims(ap_ctx *ctx, const ap_options *opt, ap_import_options *io)
{
    ap_dim_binding *dim = AP_NEW_ARRAY(&ctx->arena, ap_dim_binding, opt->dim.item.len);
    for (uint32_t i = 0; i < opt->dim.item.len; i++) {
        const char *s = opt->dim.item.at[i], *eq = strrchr(s, '=');
        if (!eq || eq == s)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "--dim: '%s' is not NAME=SIZE", s);
        if (strchr(eq, ','))
            return ap_fail(ctx, AP_ERR_USAGE, 0, "--dim: one size per dimension, '%s' gives several", s);
        dim[i].name = ap_arena_strndup(&ctx->arena, s, (size_t)(eq - s));
        AP_TRY(ap_option_int(ctx, "dim", eq + 1, 0, INT64_MAX, &dim[i].size));
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(dim[k].name, dim[i].name) == 0 && dim[k].size != dim[i].size)
                return ap_fail(ctx, AP_ERR_USAGE, 0, "--dim: '%s' is given two sizes", dim[i].name);
    }
    io->ndims = opt->dim.item.len;
    io->dim = dim;
    return AP_OK;
}

/* input_0.pb, input_1.pb, ... of a test data set, with their contents: inputs of the passes' check. */
static ap_status read_data_set(ap_ctx *ctx, const char *dir, uint32_t *out_n, ap_tensor **out)
{
    AP_VEC(ap_tensor) tensors = {0};
    for (uint32_t i = 0;; i++) {
        const char *path = ap_name_str(ctx, ap_name_format(ctx, "%s/input_%u.pb", dir, i));
        struct stat st;
        if (stat(path, &st) != 0)
            break;
        ap_tensor t;
        AP_TRY(ap_onnx_tensor_load(ctx, path, &ctx->arena, &t));
        ap_vec_push(&ctx->arena, &tensors, t);
    }
    if (tensors.len == 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: no input_0.pb there", dir);
    *out_n = tensors.len;
    *out = tensors.at;
    return AP_OK;
}

static void shapes_of(ap_ctx *ctx, const ap_tensor *t, uint32_t n, ap_import_options *io)
{
    ap_input_shape *shape = AP_NEW_ARRAY(&ctx->arena, ap_input_shape, n);
    for (uint32_t i = 0; i < n; i++) {
        shape[i].index = i;
        shape[i].rank = (uint32_t)ap_shape_dims(&t[i].shape, shape[i].dim);
    }
    io->nshapes = n;
    io->shape = shape;
}

static ap_status read_batch(ap_ctx *ctx, const ap_options *opt, ap_import_options *io)
{
    if (opt->batch_dim && !opt->batch)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--batch-dim says what --batch N binds, which is missing");
    if (opt->batch)
        AP_TRY(ap_option_int(ctx, "batch", opt->batch, 1, INT64_C(1) << 40, &io->batch));
    io->batch_dim = opt->batch_dim;
    return AP_OK;
}

ap_status ap_job_import(ap_ctx *ctx, const ap_options *opt, bool weights_absent, ap_job *out)
{
    memset(out, 0, sizeof *out);
    out->ctx = ctx;
    out->opt = opt;
    ap_import_options io = {.weights_absent = weights_absent};
    AP_TRY(read_dims(ctx, opt, &io));
    AP_TRY(read_batch(ctx, opt, &io));
    AP_TRY(read_planning(out));
    uint32_t ninputs = 0;
    ap_tensor *input = NULL;
    if (opt->shapes_from) {
        AP_TRY(read_data_set(ctx, opt->shapes_from, &ninputs, &input));
        shapes_of(ctx, input, ninputs, &io);
    }
    AP_TRY(ap_onnx_import(ctx, opt->subject, &io, &out->m, &out->info));
    AP_TRY(ap_file_digest(ctx, opt->subject, out->digest));
    if (!opt->check_passes)
        return AP_OK;
    if (input && ninputs != out->m->funcs.at[0].narguments)
        return ap_fail(ctx, AP_ERR_MODEL, 0, "%s: %u inputs, the model has %u", opt->shapes_from, ninputs,
                       out->m->funcs.at[0].narguments);
    AP_TRY(ap_check_init(ctx, out->m, input, &out->check));
    out->checking = true;
    return ap_check_after(&out->check, ctx, "import", out->m);
}

void ap_job_deinit(ap_job *job)
{
    if (job->checking)
        ap_check_deinit(&job->check);
    job->checking = false;
}

static ap_status checked(ap_job *job, const char *pass)
{
    return job->checking ? ap_check_after(&job->check, job->ctx, pass, job->m) : AP_OK;
}

ap_status ap_job_normalise(ap_job *job)
{
    ap_pass_hook hook = {.after = ap_check_after, .user = &job->check};
    return ap_passes_run(job->ctx, job->m, AP_PASSES_NORMAL, job->checking ? &hook : NULL);
}

/* ---- planning ---- */

/* The planner's own figures against a pricing that shares no code with it. */
static ap_status reevaluate(ap_job *job)
{
    ap_plan_result again;
    AP_TRY(ap_plan_evaluate(job->ctx, job->m, &job->planning.cluster, &again));
    bool same = again.cost_ps == job->result.cost_ps && again.peak_bytes == job->result.peak_bytes;
    if (!same && job->opt->plan)
        return ap_error(
            job->ctx, 0,
            "%s: its figures do not fit its program: it says %lld ps and %lld bytes, by its shardings it is "
            "%lld ps and %lld bytes",
            job->opt->plan, (long long)job->result.cost_ps, (long long)job->result.peak_bytes, (long long)again.cost_ps,
            (long long)again.peak_bytes);
    if (!same)
        return ap_fail(job->ctx, AP_ERR_BUG, 0,
                       "the plan was priced at %lld ps and %lld bytes, its types say %lld ps and %lld bytes",
                       (long long)job->result.cost_ps, (long long)job->result.peak_bytes, (long long)again.cost_ps,
                       (long long)again.peak_bytes);
    return AP_OK;
}

/* A plan without its shardings must be the program of this model, word for word: same nodes, same data. */
static ap_status check_same_program(ap_job *job, const ap_plan_file *f)
{
    ap_ctx *ctx = job->ctx;
    ap_module *bare = ap_module_clone(f->m);
    ap_module_erase_plan(bare, job->m->funcs.at[0].name);
    ap_text ours, theirs;
    ap_text_init(&ours, &ctx->scratch);
    ap_text_init(&theirs, &ctx->scratch);
    ap_module_print(job->m, &ours);
    ap_module_print(bare, &theirs);
    if (strcmp(ap_text_str(&ours), ap_text_str(&theirs)) == 0)
        return AP_OK;
    return ap_error(ctx, 0, "%s: the program in it is not that of this model with these dimensions", job->opt->plan);
}

static ap_status use_plan(ap_job *job)
{
    ap_plan_file f;
    AP_TRY(ap_plan_file_read(job->ctx, job->opt->plan, &f));
    if (strcmp(f.digest, job->digest) != 0)
        return ap_error(job->ctx, 0, "%s: made for another model (digest %s, this one has %s)", job->opt->plan,
                        f.digest, job->digest);
    AP_TRY(check_same_program(job, &f));
    f.m->folder = job->m->folder;
    job->m = f.m;
    job->planning.cluster = f.cluster;
    job->result = f.result;
    return check_devices(job);
}

ap_status ap_job_plan(ap_job *job)
{
    if (job->opt->plan) {
        AP_TRY(use_plan(job));
    } else {
        AP_TRY(ap_pass_plan(job->ctx, job->m, &job->planning, &job->result));
    }
    AP_TRY(reevaluate(job));
    ap_arena_reset(&job->ctx->scratch);
    return checked(job, "plan");
}

ap_status ap_job_lower(ap_job *job, const char *name, ap_local **out)
{
    AP_TRY(ap_explicit_run(job->ctx, job->m, &job->planning.cluster));
    AP_TRY(checked(job, "explicit"));
    AP_TRY(ap_lower_local(job->ctx, job->m, name, out));
    ap_local_price(*out, &job->planning.cluster);
    ap_arena_reset(&job->ctx->scratch);
    return job->checking ? ap_check_local(&job->check, job->ctx, *out) : AP_OK;
}
