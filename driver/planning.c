/* Cluster, mesh, limits, pins, stages: what --cluster to --time-limit say. */
#include "driver/planning.h"

#include "backend/backend.h"
#include "driver/targets.h"
#include "ir/list.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

/* ---- meshes ---- */

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
static void auto_mesh(ap_ctx *ctx, const ap_cluster *c, int64_t devices, ap_mesh_info *out)
{
    bool two = c->devices_per_host > 1 && devices > c->devices_per_host && devices % c->devices_per_host == 0;
    out->naxes = two ? 2 : 1;
    out->axis_name[0] = ap_name_make(ctx, "x");
    out->axis_size[0] = (int32_t)(two ? devices / c->devices_per_host : devices);
    if (two) {
        out->axis_name[1] = ap_name_make(ctx, "y");
        out->axis_size[1] = c->devices_per_host;
    }
}

/* Of each stage. */
static ap_status read_mesh(ap_ctx *ctx, const ap_options *opt, ap_plan_request *r)
{
    const char *text = opt->mesh && strcmp(opt->mesh, "auto") != 0 ? opt->mesh : NULL;
    int64_t devices = ap_cluster_devices(&r->plan.cluster), product = 1;
    ap_mesh_info *mesh = &r->plan.mesh;
    *mesh = (ap_mesh_info){.name = ap_name_make(ctx, "m")};
    r->mesh_given = text != NULL;
    if (r->nstages > devices)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--stages: %u stages, %lld devices", r->nstages, (long long)devices);
    if (!text) {
        auto_mesh(ctx, &r->plan.cluster, devices, mesh);
        return AP_OK;
    }
    AP_TRY(read_axes(ctx, text, mesh));
    for (int a = 0; a < mesh->naxes; a++)
        product = ap_sat_mul(product, mesh->axis_size[a]);
    int64_t stages = ap_max_i64(r->nstages, 1);
    if (r->nstages == 1 ? product == devices : ap_sat_mul(product, stages) <= devices)
        return AP_OK;
    if (stages == 1)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--mesh: '%s' has %lld devices, %lld are there", text, (long long)product,
                       (long long)devices);
    return ap_fail(ctx, AP_ERR_USAGE, 0, "--mesh: %lld stages of '%s' have %lld devices, %lld are there",
                   (long long)stages, text, (long long)ap_sat_mul(product, stages), (long long)devices);
}

/* ---- stages ---- */

static ap_status read_count(ap_ctx *ctx, const char *option, const char *text, int64_t most, int64_t *out)
{
    *out = 0;
    if (!text || strcmp(text, "auto") == 0)
        return AP_OK;
    return ap_option_int(ctx, option, text, 1, most, out);
}

/* Without --stages: the devices of one host are one stage, for every operator can be split over its links, and so are
 * those of a mesh that is given or that is to be split by force; several hosts, and whoever asks for what only stages
 * have, get as many stages as are best. */
static bool is_one_stage(const ap_options *opt, const ap_plan_request *r)
{
    bool mesh = opt->mesh && strcmp(opt->mesh, "auto") != 0;
    bool asked = opt->microbatches || opt->objective || r->pins.nnodes;
    return mesh || opt->split || (r->plan.cluster.hosts == 1 && r->plan.cluster.ngroups == 0 && !asked);
}

static ap_status read_stages(ap_ctx *ctx, const ap_options *opt, ap_plan_request *r)
{
    int64_t stages, microbatches;
    AP_TRY(read_count(ctx, "stages", opt->stages, AP_CLUSTER_MAX_DEVICES, &stages));
    AP_TRY(read_count(ctx, "microbatches", opt->microbatches, AP_MAX_MICROBATCHES, &microbatches));
    r->nstages = !opt->stages && is_one_stage(opt, r) ? 1 : (uint32_t)stages;
    r->microbatches = (int32_t)microbatches;
    r->latency = opt->objective && strcmp(opt->objective, "latency") == 0;
    if (opt->objective && !r->latency && strcmp(opt->objective, "throughput") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--objective: 'throughput' or 'latency', not '%s'", opt->objective);
    return AP_OK;
}

static ap_status check_node_pins(ap_ctx *ctx, const ap_options *opt, const ap_plan_request *r)
{
    uint32_t devices = (uint32_t)ap_cluster_devices(&r->plan.cluster);
    for (uint32_t i = 0; i < r->pins.nnodes; i++) {
        const ap_node_pin *pin = &r->pins.node[i];
        if (r->nstages > 0 && pin->stage >= r->nstages)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "%s:%d: there is no stage %u: there are %u, from 0", opt->pin,
                           pin->line, pin->stage, r->nstages);
        if (pin->stage >= devices)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "%s:%d: there is no stage %u: %u device%s can have %u at most, from 0",
                           opt->pin, pin->line, pin->stage, devices, devices == 1 ? "" : "s", devices);
    }
    return AP_OK;
}

/* ---- all of it ---- */

bool ap_plan_is_asked(const ap_options *opt)
{
    const char *const decided[] = {opt->devices, opt->cluster, opt->mesh,         opt->memory,
                                   opt->pin,     opt->split,   opt->time_limit,   opt->budget,
                                   opt->threads, opt->stages,  opt->microbatches, opt->objective};
    for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
        if (decided[i])
            return true;
    return false;
}

ap_status ap_plan_is_given(ap_ctx *ctx, const ap_options *opt)
{
    if (!ap_plan_is_asked(opt))
        return AP_OK;
    return ap_fail(ctx, AP_ERR_USAGE, 0,
                   "a plan is used as it is: no --devices, --cluster, --mesh, --memory, --pin, --split, "
                   "--stages, --microbatches, --objective, --time-limit, --budget, --threads beside it");
}

ap_status ap_plan_request_check(ap_ctx *ctx, const ap_options *opt, const ap_cluster *c)
{
    int64_t devices = ap_cluster_devices(c);
    if ((opt->command == AP_CMD_COMPILE || opt->command == AP_CMD_RUN) && devices > AP_PROGRAM_MAX_DEVICES)
        return ap_fail(ctx, AP_ERR_USAGE, 0,
                       "a program has at most %d devices, not %lld (`autopar plan` plans for more)",
                       AP_PROGRAM_MAX_DEVICES, (long long)devices);
    return AP_OK;
}

static ap_status read_cluster(ap_ctx *ctx, const ap_options *opt, ap_cluster *out)
{
    int64_t devices = 1;
    if (opt->devices && opt->cluster)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--devices and --cluster exclude each other");
    if (opt->devices)
        AP_TRY(ap_option_int(ctx, "devices", opt->devices, 1, 1024, &devices));
    if (opt->cluster)
        AP_TRY(ap_cluster_find(ctx, opt->cluster, out));
    else if (ap_target_is_cuda(opt))
        AP_TRY(ap_target_cluster(ctx, devices, out));
    else
        ap_cluster_local((int32_t)devices, out);
    return ap_plan_request_check(ctx, opt, out);
}

ap_status ap_plan_request_read(ap_ctx *ctx, const ap_options *opt, ap_plan_request *out)
{
    ap_plan_options *p = &out->plan;
    int64_t threads = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (ap_plan_request){0};
    if (opt->plan)
        AP_TRY(ap_plan_is_given(ctx, opt));
    AP_TRY(read_cluster(ctx, opt, &p->cluster));
    if (opt->pin)
        AP_TRY(ap_pins_read(ctx, opt->pin, &out->pins));
    AP_TRY(read_stages(ctx, opt, out));
    AP_TRY(check_node_pins(ctx, opt, out));
    AP_TRY(read_mesh(ctx, opt, out));
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
    p->pin_file = opt->pin;
    p->npins = out->pins.n;
    p->pin = out->pins.pin;
    return AP_OK;
}
