/* Import, normalise, plan, lower: the road of DESIGN §3 as the commands walk it. */
#include "driver/job.h"

#include "driver/plan_file.h"
#include "driver/targets.h"
#include "frontend/tensor.h"
#include "ir/base/file.h"
#include "ir/base/text.h"
#include "ir/text_form.h"
#include "passes/batch.h"
#include "passes/pipe/carve.h"
#include "passes/pipe/even.h"
#include "passes/pipe/layers.h"
#include "passes/pipe/lower.h"
#include "passes/pipe/pins.h"
#include "passes/pipe/search.h"
#include "passes/pipe/sim_model.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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
    if (opt->batch_dim && !opt->batch && !opt->microbatches)
        return ap_fail(ctx, AP_ERR_USAGE, 0,
                       "--batch-dim says what --batch N binds and --microbatches N cuts, which are missing");
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
    AP_TRY(ap_plan_request_read(ctx, opt, &out->request));
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

ap_status ap_job_normalise(ap_job *job)
{
    ap_pass_hook hook = {.after = ap_check_after, .user = &job->check};
    AP_TRY(ap_passes_run(job->ctx, job->m, AP_PASSES_NORMAL, job->checking ? &hook : NULL));
    ap_layers_order(job->ctx, job->m);
    ap_arena_reset(&job->ctx->scratch);
    return job->checking ? ap_check_after(&job->check, job->ctx, "order", job->m) : AP_OK;
}

/* ---- planning ---- */

/* The planner's own figures against a pricing that shares no code with it. */
static ap_status reevaluate(ap_job *job)
{
    ap_pipe_result again;
    const ap_plan_result *now = &again.total, *was = &job->result.total;
    AP_TRY(ap_pipe_evaluate(job->ctx, job->p, &job->request.plan.cluster, &again));
    bool same = now->cost_ps == was->cost_ps && now->peak_bytes == was->peak_bytes;
    for (uint32_t s = 0; same && s < again.nstages; s++)
        same = again.stage[s].plan.cost_ps == job->result.stage[s].plan.cost_ps &&
               again.stage[s].plan.peak_bytes == job->result.stage[s].plan.peak_bytes;
    if (!same && job->opt->plan)
        return ap_error(
            job->ctx, 0,
            "%s: its figures do not fit its program: it says %lld ps and %lld bytes, by its shardings it is "
            "%lld ps and %lld bytes",
            job->opt->plan, (long long)was->cost_ps, (long long)was->peak_bytes, (long long)now->cost_ps,
            (long long)now->peak_bytes);
    if (!same)
        return ap_fail(job->ctx, AP_ERR_BUG, 0,
                       "the plan was priced at %lld ps and %lld bytes, its types say %lld ps and %lld bytes",
                       (long long)was->cost_ps, (long long)was->peak_bytes, (long long)now->cost_ps,
                       (long long)now->peak_bytes);
    return AP_OK;
}

static const char *text_of(ap_ctx *ctx, const ap_module *m)
{
    ap_text t;
    ap_text_init(&t, &ctx->scratch);
    ap_module_print(m, &t);
    return ap_text_str(&t);
}

/* A plan without its shardings must be the program of this model, word for word: same nodes, same data. Stages are
 * compared with what is cut out of the model where the plan says that it is cut. */
static bool is_same_program(const ap_job *job, const ap_plan_file *f)
{
    ap_ctx *ctx = job->ctx;
    uint32_t n = f->p->stages.len;
    ap_carver *c = n > 1 ? ap_carver_create(&ctx->scratch, job->m) : NULL;
    uint32_t nodes = c ? ap_carver_nnodes(c) : 0;
    for (uint32_t s = 0; s < n; s++) {
        ap_module *bare = ap_module_clone(f->p->stages.at[s].m);
        const ap_module *ours = job->m;
        ap_module_erase_plan(bare, job->m->funcs.at[0].name);
        if (c) {
            ap_carved part;
            uint32_t last = s + 1 < n ? f->result.stage[s + 1].first : nodes;
            if (f->result.stage[s].first > last || last > nodes || (s == 0 && f->result.stage[s].first != 0))
                return false;
            ap_carve(c, &ctx->scratch, f->result.stage[s].first, last, &part);
            ours = part.m;
        }
        if (strcmp(text_of(ctx, ours), text_of(ctx, bare)) != 0)
            return false;
    }
    return true;
}

static ap_status use_plan(ap_job *job)
{
    ap_plan_file f;
    AP_TRY(ap_plan_file_read(job->ctx, job->opt->plan, &f));
    if (strcmp(f.digest, job->digest) != 0)
        return ap_error(job->ctx, 0, "%s: made for another model (digest %s, this one has %s)", job->opt->plan,
                        f.digest, job->digest);
    for (uint32_t i = 0; i < f.opened.len; i++)
        if (!ap_open_composite(job->m, f.opened.at[i]))
            return ap_error(job->ctx, 0, "%s: \"opened\" names what is no composite of this model", job->opt->plan);
    job->opened = f.opened;
    if (!is_same_program(job, &f))
        return ap_error(job->ctx, 0, "%s: the program in it is not that of this model with these dimensions",
                        job->opt->plan);
    for (uint32_t s = 0; s < f.p->stages.len; s++)
        f.p->stages.at[s].m->folder = job->m->folder;
    job->p = f.p;
    job->request.plan.cluster = f.cluster;
    job->result = f.result;
    return ap_plan_request_check(job->ctx, job->opt, &f.cluster);
}

/* One stage on all devices. */
static ap_status plan_one(ap_job *job, const uint32_t *pinned)
{
    ap_ctx *ctx = job->ctx;
    ap_plan_request *r = &job->request;
    ap_pipe_choice choice;
    int32_t microbatches = r->microbatches ? r->microbatches : 1;
    if (microbatches > 1)
        AP_TRY(ap_batch_arguments(ctx, job->m, job->info.batch_dim, microbatches, &r->plan.batch));
    AP_TRY(ap_pipe_even(ctx, &ctx->arena, job->m, &r->plan.cluster, 1, &r->plan.mesh, microbatches, pinned, &choice));
    return ap_pipe_build(ctx, job->m, &r->plan, &choice, &job->p, &job->result);
}

static ap_status search(ap_job *job, const uint32_t *pinned)
{
    const ap_plan_request *r = &job->request;
    ap_pipe_search_options options = {.nstages = r->nstages,
                                      .microbatches = r->microbatches,
                                      .latency = r->latency,
                                      .mesh = r->mesh_given ? &r->plan.mesh : NULL,
                                      .stage = pinned,
                                      .batch_dim = job->info.batch_dim};
    if (r->plan.problem_path)
        return ap_fail(job->ctx, AP_ERR_USAGE, 0,
                       "--dump-problem: each of several stages has a problem of its own; --stages 1 has one");
    return ap_pipe_search(job->ctx, job->m, &r->plan, &options, &job->p, &job->result, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* On another machine's host one stage is only a default: of large models the search plans that much sooner, as it
 * prices memory where the solver would prove what is best. */
static bool is_large(const ap_job *job)
{
    enum { LARGE = 500 }; /* nodes */
    const ap_options *o = job->opt;
    return !o->stages && !o->split && !o->dump_problem && !job->request.mesh_given &&
           strcmp(job->request.plan.cluster.name, "local") != 0 &&
           ap_block_at(job->m, job->m->funcs.at[0].body)->nodes.len > LARGE;
}

static ap_status open_composites(ap_job *job)
{
    const ap_plan_request *r = &job->request;
    ap_open_hindrances(job->ctx, job->m, &r->pins, r->nstages, &job->opened);
    return job->checking && job->opened.len > 0 ? ap_check_after(&job->check, job->ctx, "open", job->m) : AP_OK;
}

/* Outputs are inputs and constants, nothing is computed. */
static bool is_empty(const ap_module *m)
{
    return ap_block_at(m, m->funcs.at[0].body)->nodes.len == 1;
}

static ap_status make_plan(ap_job *job)
{
    const ap_plan_request *r = &job->request;
    const uint32_t *pinned;
    double start = now();
    job->request.pins.norigins = job->info.norigins;
    job->request.pins.origin = job->info.origin;
    if (is_large(job))
        job->request.nstages = 0;
    AP_TRY(open_composites(job));
    AP_TRY(ap_pipe_pins_find(&job->ctx->arena, job->m, &r->pins, r->nstages, r->plan.pin_file, &pinned));
    bool indivisible = is_empty(job->m) || ap_cluster_devices(&r->plan.cluster) == 1;
    bool one = r->nstages == 1 || (r->nstages == 0 && !pinned && indivisible);
    AP_TRY(one ? plan_one(job, pinned) : search(job, pinned));
    job->result.total.planning_seconds = now() - start;
    return AP_OK;
}

ap_status ap_job_plan(ap_job *job)
{
    AP_TRY(job->opt->plan ? use_plan(job) : make_plan(job));
    AP_TRY(reevaluate(job));
    ap_arena_reset(&job->ctx->scratch);
    return job->checking ? ap_check_pipeline(&job->check, job->ctx, "plan", job->p) : AP_OK;
}

/* When stages run and channels move, for traces. */
static ap_status note_times(ap_ctx *ctx, ap_program *p, const ap_cluster *c)
{
    const ap_sim_model *model = ap_sim_of_program(p, c, &ctx->scratch);
    ap_sim_result r;
    AP_TRY(ap_simulate(&model->in, &ctx->scratch, true, &r));
    ap_sim_note(p, &r, &ctx->arena);
    return AP_OK;
}

/* Lowering keeps to what was planned where it can; the rest is told. */
static void note_memory(const ap_job *job, const ap_program *p)
{
    int64_t limit = job->request.plan.memory;
    for (uint32_t s = 0; s < p->stages.len && limit > 0 && !job->opt->quiet; s++) {
        int64_t need = ap_sat_add(ap_program_arena_bytes(p, s), p->stages.at[s]->param_bytes);
        if (need > limit)
            fprintf(
                stderr,
                "autopar: note: stage %s needs %lld bytes per device, %lld more than --memory says: lowered, it holds "
                "values that planning does not see\n",
                ap_name_str(job->ctx, p->stages.at[s]->name), (long long)need, (long long)(need - limit));
    }
}

ap_status ap_job_lower(ap_job *job, const char *name, ap_program **out)
{
    const ap_cluster *c = &job->request.plan.cluster;
    AP_TRY(ap_pipe_explicit(job->ctx, job->p, c));
    if (job->checking)
        AP_TRY(ap_check_pipeline(&job->check, job->ctx, "explicit", job->p));
    AP_TRY(ap_targets_find(job, &job->target));
    const ap_lower_options *lowering = ap_targets_lowering(job->ctx, job->target, job->p->stages.len);
    AP_TRY(ap_lower_program_for(job->ctx, job->p, c, name, lowering, out));
    ap_targets_rename(*out, job->target);
    ap_program_price(*out, c);
    AP_TRY(note_times(job->ctx, *out, c));
    ap_program_close_ranks(*out);
    note_memory(job, *out);
    ap_arena_reset(&job->ctx->scratch);
    return job->checking ? ap_check_program(&job->check, job->ctx, *out) : AP_OK;
}
