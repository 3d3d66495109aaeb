/* Writing and reading plan.json. */
#include "driver/plan_file.h"

#include "ir/base/file.h"
#include "ir/text_form.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLAN_SCHEMA 2

int64_t ap_idle_devices(const ap_pipeline *p, const ap_cluster *c)
{
    int64_t idle = ap_cluster_devices(c);
    for (uint32_t s = 0; s < p->stages.len; s++)
        idle -= ap_mesh_ranks(ap_stage_mesh(&p->stages.at[s]));
    return idle;
}

static double seconds(int64_t ps)
{
    return (double)ps * 1e-12;
}

ap_status ap_json_text(ap_ctx *ctx, cJSON *json, const char **out)
{
    char *s = json ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    if (!s)
        return ap_fail(ctx, AP_ERR_ENV, 0, "out of memory");
    *out = ap_arena_strdup(&ctx->arena, s);
    cJSON_free(s);
    return AP_OK;
}

static cJSON *stage_json(const ap_job *job, uint32_t index)
{
    const ap_stage_result *r = &job->result.stage[index];
    const ap_mesh_info *mesh = ap_stage_mesh(&job->p->stages.at[index]);
    cJSON *stage = cJSON_CreateObject(), *ranks = cJSON_AddArrayToObject(stage, "ranks");
    for (int32_t i = 0; i < ap_mesh_ranks(mesh); i++)
        cJSON_AddItemToArray(ranks, cJSON_CreateNumber(mesh->first_rank + i));
    cJSON *axes = cJSON_AddObjectToObject(stage, "mesh");
    for (int a = mesh->ntime; a < mesh->naxes; a++)
        cJSON_AddNumberToObject(axes, ap_name_str(job->ctx, mesh->axis_name[a]), mesh->axis_size[a]);
    cJSON_AddNumberToObject(stage, "nodes", r->nodes);
    cJSON_AddNumberToObject(stage, "seconds", seconds(r->time_ps));
    cJSON_AddNumberToObject(stage, "transfer_seconds", seconds(r->arrival_ps));
    cJSON_AddNumberToObject(stage, "peak_bytes", (double)r->plan.peak_bytes);
    cJSON_AddNumberToObject(stage, "parameter_bytes", (double)r->plan.param_bytes);
    cJSON_AddNumberToObject(stage, "slot_bytes", (double)r->plan.slot_bytes);
    return stage;
}

static double gap_of(const ap_plan_result *r)
{
    return r->cost_ps > 0 ? (double)(r->cost_ps - r->bound_ps) / (double)r->cost_ps : 0;
}

cJSON *ap_plan_json(const ap_job *job, bool with_time)
{
    const ap_plan_result *r = &job->result.total;
    const ap_cluster *c = &job->request.plan.cluster;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "seconds", seconds(r->cost_ps));
    cJSON_AddNumberToObject(o, "bound", seconds(r->bound_ps));
    cJSON_AddNumberToObject(o, "gap", gap_of(r));
    cJSON_AddStringToObject(o, "proof", r->proof ? r->proof : "");
    if (with_time) {
        cJSON_AddNumberToObject(o, "planning_seconds", r->planning_seconds);
        cJSON_AddNumberToObject(o, "solver_seconds", r->solver_seconds);
    }
    cJSON_AddNumberToObject(o, "compute_seconds", seconds(r->compute_ps));
    cJSON_AddNumberToObject(o, "communication_seconds", seconds(r->communication_ps));
    cJSON_AddNumberToObject(o, "sharded_flops_fraction", r->sharded_flops_fraction);
    cJSON_AddNumberToObject(o, "peak_bytes", (double)r->peak_bytes);
    cJSON_AddNumberToObject(o, "parameter_bytes", (double)r->param_bytes);
    cJSON_AddStringToObject(o, "cluster", c->name);
    cJSON_AddNumberToObject(o, "hosts", c->hosts);
    cJSON_AddNumberToObject(o, "devices_per_host", c->devices_per_host);
    cJSON_AddNumberToObject(o, "idle_devices", (double)ap_idle_devices(job->p, c));
    cJSON_AddNumberToObject(o, "microbatches", job->p->microbatches);
    cJSON_AddStringToObject(o, "schedule", "inference");
    cJSON_AddNumberToObject(o, "variables", r->variables);
    cJSON_AddNumberToObject(o, "strategies", r->strategies);
    cJSON_AddNumberToObject(o, "edges", r->edges);
    cJSON *stages = cJSON_AddArrayToObject(o, "stages");
    for (uint32_t s = 0; s < job->p->stages.len; s++)
        cJSON_AddItemToArray(stages, stage_json(job, s));
    return o;
}

/* ---- exact integers: as decimal texts, because a JSON number is a double for many readers ---- */

static void add_int(cJSON *o, const char *key, int64_t v)
{
    char s[32];
    snprintf(s, sizeof s, "%lld", (long long)v);
    cJSON_AddStringToObject(o, key, s);
}

static ap_status get_int(ap_ctx *ctx, const char *path, const cJSON *o, const char *key, int64_t *out)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    char *end = NULL;
    if (cJSON_IsString(v))
        *out = strtoll(v->valuestring, &end, 10);
    if (!end || end == v->valuestring || *end)
        return ap_error(ctx, 0, "%s: \"%s\" is missing or no integer", path, key);
    return AP_OK;
}

static ap_status get_string(ap_ctx *ctx, const char *path, const cJSON *o, const char *key, const char **out)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!cJSON_IsString(v))
        return ap_error(ctx, 0, "%s: \"%s\" is missing or no text", path, key);
    *out = ap_arena_strdup(&ctx->arena, v->valuestring);
    return AP_OK;
}

/* The fields of a cluster and of a result that are whole numbers. Those of the second list are later ones: 0 in plans
 * without them. */
#define CLUSTER_INTS(X)                                                                                                \
    X(vector_flops_per_second)                                                                                         \
    X(memory_bytes_per_second)                                                                                         \
    X(memory_bytes)                                                                                                    \
    X(launch_ps) X(inside.latency_ps) X(inside.bytes_per_second) X(between.latency_ps) X(between.bytes_per_second)
#define CLUSTER_LATER_INTS(X)                                                                                          \
    X(across.latency_ps)                                                                                               \
    X(across.bytes_per_second)                                                                                         \
    X(across.shared_bytes_per_second)                                                                                  \
    X(between.shared_bytes_per_second)                                                                                 \
    X(function_flops_per_second) X(product_call_ps) X(conv_call_ps) X(fold_ps) X(conv_step_elements_per_second)
/* 32 bits */
#define CLUSTER_SMALL_INTS(X) X(lanes) X(tile_columns) X(tile_depth)
#define CACHE_INTS(X) X(bytes) X(bytes_per_second)
#define TIER_INTS(X) X(bytes) X(bytes_per_second) X(latency_ps)
#define RESULT_INTS(X)                                                                                                 \
    X(cost_ps) X(bound_ps) X(compute_ps) X(communication_ps) X(transfer_ps) X(peak_bytes) X(param_bytes) X(slot_bytes)
#define STAGE_INTS(X) X(time_ps) X(arrival_ps) X(sending_ps)

static cJSON *tier_json(const ap_memory_tier *t)
{
    cJSON *tier = cJSON_CreateObject();
    cJSON_AddStringToObject(tier, "name", t->name);
    add_int(tier, "shared_by", t->shared_by);
#define X(f) add_int(tier, #f, t->f);
    TIER_INTS(X)
#undef X
    return tier;
}

/* A double, exactly. */
static void add_exact(cJSON *o, const char *key, double x)
{
    char text[64];
    snprintf(text, sizeof text, "%a", x);
    cJSON_AddStringToObject(o, key, text);
}

static cJSON *reached_json(const ap_cluster *c)
{
    cJSON *list = cJSON_CreateArray();
    for (int32_t i = 0; i < c->nreached; i++) {
        cJSON *point = cJSON_CreateObject();
        add_int(point, "flops", c->reached[i].flops);
        add_exact(point, "fraction", c->reached[i].fraction);
        cJSON_AddItemToArray(list, point);
    }
    return list;
}

static const char *const conv_keys[AP_PRODUCT_KINDS] = {[AP_PRODUCT_SPATIAL] = "conv_spatial",
                                                        [AP_PRODUCT_POINTWISE] = "conv_pointwise",
                                                        [AP_PRODUCT_DEPTHWISE] = "conv_depthwise"};

static void add_finer(cJSON *o, const ap_cluster *c)
{
    for (int k = AP_PRODUCT_SPATIAL; k < AP_PRODUCT_KINDS; k++)
        if (c->conv_efficiency[k] > 0)
            add_exact(o, conv_keys[k], c->conv_efficiency[k]);
#define X(f)                                                                                                           \
    if (c->f)                                                                                                          \
        add_int(o, #f, c->f);
    CLUSTER_SMALL_INTS(X)
#undef X
    cJSON *caches = c->ncaches ? cJSON_AddArrayToObject(o, "caches") : NULL;
    for (int32_t i = 0; i < c->ncaches; i++) {
        cJSON *cache = cJSON_CreateObject();
#define X(f) add_int(cache, #f, c->cache[i].f);
        CACHE_INTS(X)
#undef X
        cJSON_AddItemToArray(caches, cache);
    }
}

/* Of unlike hosts also the groups; what stands beside them is the slowest of each. */
static cJSON *cluster_json(const ap_cluster *c)
{
    cJSON *o = cJSON_CreateObject(), *flops = NULL;
    cJSON_AddStringToObject(o, "name", c->name);
    cJSON_AddStringToObject(o, "cost", ap_cost_model_str(c->cost));
    add_int(o, "hosts", c->hosts);
    add_int(o, "devices_per_host", c->devices_per_host);
    add_int(o, "island", c->island);
    if (c->transfers_wait)
        cJSON_AddTrueToObject(o, "transfers_wait");
    if (c->cpu)
        cJSON_AddTrueToObject(o, "cpu");
    add_exact(o, "contract_efficiency", c->contract_efficiency);
    add_finer(o, c);
    if (c->nreached > 0)
        cJSON_AddItemToObject(o, "reached", reached_json(c));
#define X(f) add_int(o, #f, c->f);
    CLUSTER_INTS(X)
    CLUSTER_LATER_INTS(X)
#undef X
    flops = cJSON_AddObjectToObject(o, "flops_per_second");
    for (int t = 1; t < AP_DTYPE_COUNT; t++)
        if (c->flops_per_second[t])
            add_int(flops, ap_dtype_str((ap_dtype)t), c->flops_per_second[t]);
    cJSON *memory = cJSON_AddArrayToObject(o, "memory");
    for (int i = 0; i < c->ntiers; i++)
        cJSON_AddItemToArray(memory, tier_json(&c->tier[i]));
    cJSON *groups = c->ngroups ? cJSON_AddArrayToObject(o, "groups") : NULL;
    for (int32_t g = 0; g < c->ngroups; g++)
        cJSON_AddItemToArray(groups, cluster_json(&c->group[g]));
    return o;
}

static ap_status read_tiers(ap_ctx *ctx, const char *path, const cJSON *list, ap_cluster *c)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        if (c->ntiers == AP_MAX_TIERS)
            return ap_error(ctx, 0, "%s: the cluster has more than %d memories", path, AP_MAX_TIERS);
        ap_memory_tier *t = &c->tier[c->ntiers++];
        int64_t shared_by;
        AP_TRY(get_string(ctx, path, item, "name", &t->name));
        AP_TRY(get_int(ctx, path, item, "shared_by", &shared_by));
#define X(f) AP_TRY(get_int(ctx, path, item, #f, &t->f));
        TIER_INTS(X)
#undef X
        if (shared_by < 1 || shared_by > AP_CLUSTER_MAX_DEVICES || t->bytes < 1 || t->bytes_per_second < 1 ||
            t->latency_ps < 0)
            return ap_error(ctx, 0, "%s: memory \"%s\" of the cluster makes no sense", path, t->name);
        t->shared_by = (int32_t)shared_by;
    }
    return AP_OK;
}

static ap_status read_fraction(ap_ctx *ctx, const char *path, const cJSON *o, const char *key, double *out)
{
    const char *text;
    AP_TRY(get_string(ctx, path, o, key, &text));
    *out = strtod(text, NULL);
    return *out > 0 && *out <= 1 ? AP_OK : ap_error(ctx, 0, "%s: the cluster makes no sense", path);
}

/* The curve of products, what convolutions reach: neither need be there. */
static ap_status read_efficiency(ap_ctx *ctx, const char *path, const cJSON *o, ap_cluster *c)
{
    const cJSON *point, *list = cJSON_GetObjectItemCaseSensitive(o, "reached");
    AP_TRY(read_fraction(ctx, path, o, "contract_efficiency", &c->contract_efficiency));
    for (int k = AP_PRODUCT_SPATIAL; k < AP_PRODUCT_KINDS; k++)
        if (cJSON_GetObjectItemCaseSensitive(o, conv_keys[k]))
            AP_TRY(read_fraction(ctx, path, o, conv_keys[k], &c->conv_efficiency[k]));
        else if (cJSON_GetObjectItemCaseSensitive(o, "conv_efficiency")) /* one of all, in older plans */
            AP_TRY(read_fraction(ctx, path, o, "conv_efficiency", &c->conv_efficiency[k]));
    cJSON_ArrayForEach(point, list)
    {
        if (c->nreached == AP_MAX_REACHED)
            return ap_error(ctx, 0, "%s: the cluster has more than %d points of efficiency", path, AP_MAX_REACHED);
        ap_reached *r = &c->reached[c->nreached++];
        AP_TRY(get_int(ctx, path, point, "flops", &r->flops));
        AP_TRY(read_fraction(ctx, path, point, "fraction", &r->fraction));
        if (r->flops < 1 || (c->nreached > 1 && r->flops <= r[-1].flops))
            return ap_error(ctx, 0, "%s: the points of efficiency do not ascend", path);
    }
    return AP_OK;
}

static ap_status read_small(ap_ctx *ctx, const char *path, const cJSON *o, const char *key, int32_t *out)
{
    int64_t x = 0;
    if (cJSON_GetObjectItemCaseSensitive(o, key))
        AP_TRY(get_int(ctx, path, o, key, &x));
    *out = (int32_t)x;
    return x >= 0 && x <= 4096 ? AP_OK : ap_error(ctx, 0, "%s: \"%s\" of the cluster makes no sense", path, key);
}

/* Caches, in older plans one that is no list; vectors and tiles. */
static ap_status read_finer(ap_ctx *ctx, const char *path, const cJSON *o, ap_cluster *c)
{
    const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(o, "caches");
    ap_cache old = {0};
#define X(f) AP_TRY(read_small(ctx, path, o, #f, &c->f));
    CLUSTER_SMALL_INTS(X)
#undef X
    cJSON_ArrayForEach(item, list)
    {
        if (c->ncaches == AP_MAX_CACHES)
            return ap_error(ctx, 0, "%s: the cluster has more than %d caches", path, AP_MAX_CACHES);
        ap_cache *x = &c->cache[c->ncaches++];
#define X(f) AP_TRY(get_int(ctx, path, item, #f, &x->f));
        CACHE_INTS(X)
#undef X
        if (x->bytes < 1 || x->bytes_per_second < 1 || (c->ncaches > 1 && x->bytes <= x[-1].bytes))
            return ap_error(ctx, 0, "%s: the caches of the cluster make no sense", path);
    }
    if (list || !cJSON_GetObjectItemCaseSensitive(o, "cache_bytes"))
        return AP_OK;
    AP_TRY(get_int(ctx, path, o, "cache_bytes", &old.bytes));
    AP_TRY(get_int(ctx, path, o, "cache_bytes_per_second", &old.bytes_per_second));
    if (old.bytes > 0 && old.bytes_per_second > 0)
        c->cache[c->ncaches++] = old;
    return AP_OK;
}

static ap_status read_names(ap_ctx *ctx, const char *path, const cJSON *o, ap_cluster *c)
{
    const char *cost;
    AP_TRY(get_string(ctx, path, o, "name", &c->name));
    for (const char *s = c->name; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return ap_error(ctx, 0, "%s: the name of the cluster holds a line break or another control character",
                            path);
    AP_TRY(get_string(ctx, path, o, "cost", &cost));
    if (!ap_cost_model_from_str(cost, &c->cost))
        return ap_error(ctx, 0, "%s: the cluster is priced by \"%s\", which is not known", path, cost);
    return AP_OK;
}

static ap_status read_counts(ap_ctx *ctx, const char *path, const cJSON *o, ap_cluster *c)
{
    int64_t hosts, devices, island = 0;
    AP_TRY(get_int(ctx, path, o, "hosts", &hosts));
    AP_TRY(get_int(ctx, path, o, "devices_per_host", &devices));
    if (cJSON_GetObjectItemCaseSensitive(o, "island"))
        AP_TRY(get_int(ctx, path, o, "island", &island));
    AP_TRY(read_efficiency(ctx, path, o, c));
    if (hosts < 1 || devices < 1 || hosts > AP_CLUSTER_MAX_DEVICES || devices > AP_CLUSTER_MAX_DEVICES ||
        hosts * devices > AP_CLUSTER_MAX_DEVICES || island < 0 || island > AP_CLUSTER_MAX_DEVICES)
        return ap_error(ctx, 0, "%s: the cluster makes no sense", path);
    c->hosts = (int32_t)hosts;
    c->devices_per_host = (int32_t)devices;
    c->island = (int32_t)island;
    c->transfers_wait = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "transfers_wait"));
    c->cpu = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "cpu"));
    return AP_OK;
}

static ap_status read_rates(ap_ctx *ctx, const char *path, const cJSON *o, ap_cluster *c)
{
#define X(f) AP_TRY(get_int(ctx, path, o, #f, &c->f));
    CLUSTER_INTS(X)
#undef X
    c->across = c->inside;
#define X(f)                                                                                                           \
    if (cJSON_GetObjectItemCaseSensitive(o, #f))                                                                       \
        AP_TRY(get_int(ctx, path, o, #f, &c->f));
    CLUSTER_LATER_INTS(X)
#undef X
    const cJSON *flops = cJSON_GetObjectItemCaseSensitive(o, "flops_per_second");
    for (int t = 1; t < AP_DTYPE_COUNT; t++)
        if (cJSON_GetObjectItemCaseSensitive(flops, ap_dtype_str((ap_dtype)t)))
            AP_TRY(get_int(ctx, path, flops, ap_dtype_str((ap_dtype)t), &c->flops_per_second[t]));
    for (int t = 1; t < AP_DTYPE_COUNT; t++)
        if (c->flops_per_second[t] < 0)
            return ap_error(ctx, 0, "%s: the cluster has a rate below 1", path);
    if (c->flops_per_second[AP_F32] < 1 || c->vector_flops_per_second < 1 || c->memory_bytes_per_second < 1 ||
        c->inside.bytes_per_second < 1 || c->across.bytes_per_second < 1 || c->between.bytes_per_second < 1 ||
        c->across.shared_bytes_per_second < 0 || c->function_flops_per_second < 0 ||
        c->between.shared_bytes_per_second < 0 || c->conv_step_elements_per_second < 0)
        return ap_error(ctx, 0, "%s: the cluster has a rate below 1", path);
    if (c->memory_bytes < 1 || c->launch_ps < 0 || c->fold_ps < 0 || c->product_call_ps < 0 || c->conv_call_ps < 0 ||
        c->inside.latency_ps < 0 || c->across.latency_ps < 0 || c->between.latency_ps < 0)
        return ap_error(ctx, 0, "%s: the cluster has a negative time or size", path);
    return AP_OK;
}

static ap_status read_uniform(ap_ctx *ctx, const char *path, const cJSON *o, ap_cluster *c)
{
    AP_TRY(read_names(ctx, path, o, c));
    AP_TRY(read_counts(ctx, path, o, c));
    AP_TRY(read_rates(ctx, path, o, c));
    AP_TRY(read_finer(ctx, path, o, c));
    return read_tiers(ctx, path, cJSON_GetObjectItemCaseSensitive(o, "memory"), c);
}

/* The slowest of all is not read but found again from the groups. */
static ap_status read_cluster(ap_ctx *ctx, const char *path, const cJSON *o, ap_cluster *c)
{
    AP_TRY(read_uniform(ctx, path, o, c));
    const cJSON *groups = cJSON_GetObjectItemCaseSensitive(o, "groups"), *item;
    if (!groups)
        return AP_OK;
    ap_cluster *group = AP_NEW_ARRAY(&ctx->scratch, ap_cluster, AP_MAX_GROUPS);
    int32_t n = 0;
    int64_t devices = 0;
    cJSON_ArrayForEach(item, groups)
    {
        if (n == AP_MAX_GROUPS)
            return ap_error(ctx, 0, "%s: the cluster has more than %d groups", path, AP_MAX_GROUPS);
        AP_TRY(read_uniform(ctx, path, item, &group[n]));
        devices += ap_cluster_devices(&group[n++]);
    }
    if (n < 2 || devices > AP_CLUSTER_MAX_DEVICES || devices != ap_cluster_devices(c))
        return ap_error(ctx, 0, "%s: the groups of the cluster make no sense", path);
    ap_cost_model cost = c->cost;
    ap_cluster_join(ctx, c->name, group, n, c);
    c->cost = cost;
    return AP_OK;
}

static cJSON *exact_result(const ap_plan_result *r)
{
    cJSON *o = cJSON_CreateObject();
#define X(f) add_int(o, #f, r->f);
    RESULT_INTS(X)
#undef X
    return o;
}

/* All figures of the whole and of each stage, at which node each begins, and which composites were opened first. */
static cJSON *exact_json(const ap_job *job)
{
    const ap_pipe_result *r = &job->result;
    cJSON *o = exact_result(&r->total), *stages = cJSON_AddArrayToObject(o, "stages");
    for (uint32_t i = 0; i < r->nstages; i++) {
        const ap_stage_result *s = &r->stage[i];
        cJSON *stage = exact_result(&s->plan);
        add_int(stage, "first", s->first);
        add_int(stage, "last", s->last);
        add_int(stage, "nodes", s->nodes);
#define X(f) add_int(stage, #f, s->f);
        STAGE_INTS(X)
#undef X
        cJSON_AddItemToArray(stages, stage);
    }
    cJSON *opened = cJSON_AddArrayToObject(o, "opened");
    for (uint32_t i = 0; i < job->opened.len; i++)
        cJSON_AddItemToArray(opened, cJSON_CreateNumber(job->opened.at[i]));
    return o;
}

ap_status ap_plan_file_text(ap_job *job, const char **out)
{
    ap_ctx *ctx = job->ctx;
    const char *slash = strrchr(job->opt->subject, '/');
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "schema", PLAN_SCHEMA);
    cJSON_AddStringToObject(o, "autopar", AP_VERSION);
    cJSON *model = cJSON_AddObjectToObject(o, "model");
    cJSON_AddStringToObject(model, "file", slash ? slash + 1 : job->opt->subject);
    cJSON_AddStringToObject(model, "digest", job->digest);
    cJSON_AddItemToObject(o, "cluster", cluster_json(&job->request.plan.cluster));
    cJSON_AddItemToObject(o, "predicted", ap_plan_json(job, false));
    cJSON_AddItemToObject(o, "exact", exact_json(job));
    ap_text ir;
    ap_text_init(&ir, &ctx->scratch);
    ap_pipeline_print(job->p, &ir);
    cJSON_AddStringToObject(o, "ir", ap_text_str(&ir));
    return ap_json_text(ctx, o, out);
}

static ap_status read_exact(ap_ctx *ctx, const char *path, const cJSON *o, ap_plan_result *r)
{
#define X(f) AP_TRY(get_int(ctx, path, o, #f, &r->f));
    RESULT_INTS(X)
#undef X
    return AP_OK;
}

static ap_status get_count(ap_ctx *ctx, const char *path, const cJSON *o, const char *key, uint32_t *out)
{
    int64_t v;
    AP_TRY(get_int(ctx, path, o, key, &v));
    if (v < 0 || v > INT32_MAX)
        return ap_error(ctx, 0, "%s: \"%s\" makes no sense", path, key);
    *out = (uint32_t)v;
    return AP_OK;
}

static ap_status read_stages(ap_ctx *ctx, const char *path, const cJSON *exact, uint32_t n, ap_pipe_result *r)
{
    const cJSON *stages = cJSON_GetObjectItemCaseSensitive(exact, "stages"), *stage;
    if (!cJSON_IsArray(stages) || cJSON_GetArraySize(stages) != (int)n)
        return ap_error(ctx, 0, "%s: the program has %u stage(s), the figures have others", path, n);
    r->nstages = n;
    r->stage = AP_NEW_ARRAY(&ctx->arena, ap_stage_result, n);
    ap_stage_result *s = r->stage;
    cJSON_ArrayForEach(stage, stages)
    {
        AP_TRY(read_exact(ctx, path, stage, &s->plan));
        AP_TRY(get_count(ctx, path, stage, "first", &s->first));
        AP_TRY(get_count(ctx, path, stage, "last", &s->last));
        AP_TRY(get_count(ctx, path, stage, "nodes", &s->nodes));
#define X(f) AP_TRY(get_int(ctx, path, stage, #f, &s->f));
        STAGE_INTS(X)
#undef X
        s++;
    }
    return AP_OK;
}

static ap_status read_opened(ap_ctx *ctx, const char *path, const cJSON *root, ap_opened *out)
{
    const cJSON *exact = cJSON_GetObjectItemCaseSensitive(root, "exact");
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(exact, "opened"), *x;
    if (!cJSON_IsArray(list))
        return ap_error(ctx, 0, "%s: \"opened\" is missing", path);
    cJSON_ArrayForEach(x, list)
    {
        if (!cJSON_IsNumber(x) || x->valuedouble < 0 || x->valuedouble > INT32_MAX)
            return ap_error(ctx, 0, "%s: \"opened\" makes no sense", path);
        ap_vec_push(&ctx->arena, out, (uint32_t)x->valuedouble);
    }
    return AP_OK;
}

static ap_status read_result(ap_ctx *ctx, const char *path, const cJSON *root, uint32_t nstages, ap_pipe_result *out)
{
    const cJSON *exact = cJSON_GetObjectItemCaseSensitive(root, "exact");
    const cJSON *predicted = cJSON_GetObjectItemCaseSensitive(root, "predicted");
    ap_plan_result *r = &out->total;
    AP_TRY(read_exact(ctx, path, exact, r));
    AP_TRY(read_stages(ctx, path, exact, nstages, out));
    const cJSON *fraction = cJSON_GetObjectItemCaseSensitive(predicted, "sharded_flops_fraction");
    r->sharded_flops_fraction = cJSON_IsNumber(fraction) ? fraction->valuedouble : 0;
    static const char *const counts[] = {"variables", "strategies", "edges"};
    uint32_t *into[] = {&r->variables, &r->strategies, &r->edges};
    for (int i = 0; i < 3; i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(predicted, counts[i]);
        *into[i] = cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < 4e9 ? (uint32_t)v->valuedouble : 0;
    }
    return get_string(ctx, path, predicted, "proof", &r->proof);
}

/* What is wrong with the program is told with the file that it stands in. */
static ap_status verify(ap_ctx *ctx, const char *path, ap_pipeline *p)
{
    uint32_t told = ctx->diags.len;
    ap_status status = ap_pipeline_verify(p);
    for (uint32_t i = told; i < ctx->diags.len; i++) {
        ap_diag *d = &ctx->diags.at[i];
        if (!d->loc && strncmp(d->text, path, strlen(path)) != 0)
            d->text = ap_name_str(ctx, ap_name_format(ctx, "%s: %s", path, d->text));
    }
    return status;
}

static ap_status read_root(ap_ctx *ctx, const char *path, const cJSON *root, ap_plan_file *out)
{
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(root, "schema");
    if (!cJSON_IsNumber(schema) || schema->valuedouble != PLAN_SCHEMA)
        return ap_error(ctx, 0, "%s: not a plan of this version of autopar", path);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    const char *digest, *ir;
    AP_TRY(get_string(ctx, path, model, "file", &out->model));
    AP_TRY(get_string(ctx, path, model, "digest", &digest));
    snprintf(out->digest, sizeof out->digest, "%s", digest);
    AP_TRY(read_cluster(ctx, path, cJSON_GetObjectItemCaseSensitive(root, "cluster"), &out->cluster));
    AP_TRY(get_string(ctx, path, root, "ir", &ir));
    AP_TRY(ap_pipeline_parse(ctx, path, ir, strlen(ir), &out->p));
    if (ap_pipeline_state(out->p) != AP_STATE_PLANNED)
        return ap_error(ctx, 0, "%s: the program in it is not in state planned", path);
    AP_TRY(read_result(ctx, path, root, out->p->stages.len, &out->result));
    AP_TRY(read_opened(ctx, path, root, &out->opened));
    return verify(ctx, path, out->p);
}

ap_status ap_plan_file_read(ap_ctx *ctx, const char *path, ap_plan_file *out)
{
    memset(out, 0, sizeof *out);
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        path = ap_name_str(ctx, ap_name_format(ctx, "%s/plan.json", path));
    ap_file f;
    AP_TRY(ap_file_map(ctx, path, &f));
    cJSON *root = cJSON_ParseWithLength((const char *)f.data, (size_t)f.size);
    ap_file_unmap(&f);
    if (!root)
        return ap_error(ctx, 0, "%s: not JSON", path);
    ap_status s = read_root(ctx, path, root, out);
    cJSON_Delete(root);
    return s;
}

bool ap_plan_file_is_in(ap_ctx *ctx, const char *dir)
{
    const char *path = ap_name_str(ctx, ap_name_format(ctx, "%s/plan.json", dir));
    const char *text = ap_name_str(ctx, ap_name_format(ctx, "%s/plan.txt", dir));
    uint32_t told = ctx->diags.len;
    ap_file f;
    if (access(text, F_OK) != 0 || access(path, R_OK) != 0 || ap_file_map(ctx, path, &f) != AP_OK) {
        ctx->diags.len = told; /* the caller says what it makes of that */
        return false;
    }
    cJSON *root = cJSON_ParseWithLength((const char *)f.data, (size_t)f.size);
    ap_file_unmap(&f);
    bool ours = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(root, "schema")) &&
                cJSON_IsString(cJSON_GetObjectItemCaseSensitive(root, "autopar"));
    cJSON_Delete(root);
    return ours;
}
