/* The machines that we know by name. Numbers are the makers' (peak rates, link widths) or, for `local`,
 * measured on the kind of machine that this is developed on; rates and sizes are per device, links per level.
 *
 * A text NAME:HOSTSxDEVICES picks a part: dgx-a100-80gb:1x4 is four devices of one host. */
#include "passes/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEGA INT64_C(1000000)
#define GIGA INT64_C(1000000000)
#define TERA INT64_C(1000000000000)
#define MICROSECOND INT64_C(1000000) /* in picoseconds */
#define GBIT (GIGA / 8)

typedef struct preset {
    const char *name;
    int32_t devices_per_host, island;
    int64_t f32, f16, bf16, f64; /* FLOP/s of matrix products; 0: as f32 */
    double efficiency;
    int64_t vector, memory_bandwidth, memory, launch_ps;
    ap_level inside, across, between;
} preset;

/* NVIDIA Tesla V100 GPU accelerator (data sheet, 2018): SXM2 16 or 32 GB, 900 GB/s, six NVLink 2 bricks of 25 GB/s each
 * way. `vector` is half of the peak, which counts a fused multiply-add as two. */
#define V100                                                                                                           \
    .f32 = 15700 * GIGA, .f16 = 125 * TERA, .f64 = 7800 * GIGA, .efficiency = 0.6, .vector = 7800 * GIGA,              \
    .memory_bandwidth = 900 * GIGA, .launch_ps = 5 * MICROSECOND
/* NVIDIA A100 tensor core GPU (data sheet, 2021): SXM4 80 GB, 2039 GB/s, twelve NVLink 3 bricks of 25 GB/s each way. */
#define A100                                                                                                           \
    .f32 = 19500 * GIGA, .f16 = 312 * TERA, .bf16 = 312 * TERA, .f64 = 19500 * GIGA, .efficiency = 0.6,                \
    .vector = 9700 * GIGA, .memory_bandwidth = 2039 * GIGA, .memory = 80 * GIGA, .launch_ps = 4 * MICROSECOND
/* NVIDIA H100 (data sheet, 2022; dense rates): SXM5 80 GB, 3350 GB/s, eighteen NVLink 4 bricks of 25 GB/s each way.
 * H200 (2023): the same with 141 GB at 4800 GB/s. */
#define H100                                                                                                           \
    .f32 = 67 * TERA, .f16 = 989 * TERA, .bf16 = 989 * TERA, .f64 = 67 * TERA, .efficiency = 0.6, .vector = 33 * TERA, \
    .launch_ps = 4 * MICROSECOND

/* `between`: of one device, and of a host's network cards together. Latencies are usual values of a step of NCCL. */
static const preset presets[] = {
    {.name = "p3.16xlarge", /* Amazon EC2 P3: 8 V100 16 GB in a cube mesh, of which a ring gets 130 GB/s; 25 Gbit/s */
     .devices_per_host = 8,
     V100,
     .memory = 16 * GIGA,
     .inside = {5 * MICROSECOND, 130 * GIGA, 0},
     .between = {15 * MICROSECOND, 25 * GBIT, 25 * GBIT}},
    {.name = "dgx-2", /* NVIDIA DGX-2 user guide: 16 V100 32 GB behind NVSwitch, 8 x 100 Gbit/s, one card per pair */
     .devices_per_host = 16,
     V100,
     .memory = 32 * GIGA,
     .inside = {5 * MICROSECOND, 150 * GIGA, 0},
     .between = {10 * MICROSECOND, 100 * GBIT, 800 * GBIT}},
    {.name = "summit", /* OLCF Summit user guide: per POWER9 3 V100 16 GB, two NVLink bricks for each pair of the four;
                          64 GB/s both ways between the processors; two EDR ports of 100 Gbit/s, one a processor */
     .devices_per_host = 6,
     .island = 3,
     V100,
     .memory = 16 * GIGA,
     .inside = {5 * MICROSECOND, 50 * GIGA, 0},
     .across = {7 * MICROSECOND, 32 * GIGA, 32 * GIGA},
     .between = {10 * MICROSECOND, 100 * GBIT, 200 * GBIT}},
    {.name = "dgx-a100-80gb", /* NVIDIA DGX A100 user guide: 8 A100 behind NVSwitch, 8 x HDR 200 Gbit/s, one a device */
     .devices_per_host = 8,
     A100,
     .inside = {5 * MICROSECOND, 300 * GIGA, 0},
     .between = {10 * MICROSECOND, 200 * GBIT, 1600 * GBIT}},
    {.name = "selene", /* hosts like these, eight cards for computing (Narayanan et al., SC 2021, section 5) */
     .devices_per_host = 8,
     A100,
     .inside = {5 * MICROSECOND, 300 * GIGA, 0},
     .between = {10 * MICROSECOND, 200 * GBIT, 1600 * GBIT}},
    {.name = "dgx-h100", /* NVIDIA DGX H100/H200 user guide: 8 behind NVSwitch, 8 x NDR 400 Gbit/s, one a device */
     .devices_per_host = 8,
     H100,
     .memory_bandwidth = 3350 * GIGA,
     .memory = 80 * GIGA,
     .inside = {5 * MICROSECOND, 450 * GIGA, 0},
     .between = {10 * MICROSECOND, 400 * GBIT, 3200 * GBIT}},
    {.name = "dgx-h200",
     .devices_per_host = 8,
     H100,
     .memory_bandwidth = 4800 * GIGA,
     .memory = 141 * GIGA,
     .inside = {5 * MICROSECOND, 450 * GIGA, 0},
     .between = {10 * MICROSECOND, 400 * GBIT, 3200 * GBIT}},
};
enum { NPRESETS = sizeof presets / sizeof presets[0] };

#define LOCAL_MEMORY (24 * GIGA)

void ap_cluster_local(int32_t devices, ap_cluster *out)
{
    *out = (ap_cluster){.name = "local",
                        .hosts = 1,
                        .devices_per_host = devices,
                        .contract_efficiency = 0.9,
                        .vector_flops_per_second = 8 * GIGA,
                        .memory_bytes_per_second = 8 * GIGA,
                        .memory_bytes = LOCAL_MEMORY / (devices > 0 ? devices : 1),
                        .launch_ps = MICROSECOND / 10,
                        .transfers_wait = true,
                        .cpu = true,
                        .inside = {3 * MICROSECOND, 5 * GIGA, 0},
                        .across = {3 * MICROSECOND, 5 * GIGA, 0},
                        .between = {3 * MICROSECOND, 5 * GIGA, 0}};
    out->flops_per_second[AP_F32] = 85 * GIGA;
    out->flops_per_second[AP_F64] = 42 * GIGA;
}

static void cluster_of(const preset *p, ap_cluster *out)
{
    *out = (ap_cluster){.name = p->name,
                        .hosts = 1,
                        .devices_per_host = p->devices_per_host,
                        .island = p->island,
                        .contract_efficiency = p->efficiency,
                        .vector_flops_per_second = p->vector,
                        .memory_bytes_per_second = p->memory_bandwidth,
                        .memory_bytes = p->memory,
                        .launch_ps = p->launch_ps,
                        .inside = p->inside,
                        .across = p->island ? p->across : p->inside,
                        .between = p->between};
    out->flops_per_second[AP_F32] = p->f32;
    out->flops_per_second[AP_F16] = p->f16;
    out->flops_per_second[AP_BF16] = p->bf16;
    out->flops_per_second[AP_F64] = p->f64;
}

static ap_status unknown(ap_ctx *ctx, const char *text)
{
    char list[256] = "local";
    for (int i = 0; i < NPRESETS; i++) {
        strcat(list, ", ");
        strcat(list, presets[i].name);
    }
    return ap_fail(ctx, AP_ERR_USAGE, 0, "unknown cluster \"%s\"; known: %s (each with an optional :HOSTS[xDEVICES])",
                   text, list);
}

/* A positive decimal number up to AP_CLUSTER_MAX_DEVICES; *s moves behind it. */
static bool read_count(const char **s, int32_t *out)
{
    if (**s < '0' || **s > '9')
        return false;
    char *end;
    errno = 0;
    long v = strtol(*s, &end, 10);
    if (errno != 0 || v < 1 || v > AP_CLUSTER_MAX_DEVICES)
        return false;
    *s = end;
    *out = (int32_t)v;
    return true;
}

/* What follows the colon of NAME:HOSTS[xDEVICES]. */
static bool read_part(const char *s, int32_t *out_hosts, int32_t *out_devices)
{
    bool ok = read_count(&s, out_hosts);
    if (ok && *s == 'x') {
        s++;
        ok = read_count(&s, out_devices);
    }
    return ok && *s == '\0';
}

static ap_status bad_part(ap_ctx *ctx, const char *text)
{
    return ap_fail(ctx, AP_ERR_USAGE, 0, "cluster \"%s\": expected NAME:HOSTS or NAME:HOSTSxDEVICES, each 1 to %d",
                   text, AP_CLUSTER_MAX_DEVICES);
}

/* hosts, devices: 0 leaves what the cluster has. */
static ap_status take_uniform(ap_ctx *ctx, const char *text, int32_t hosts, int32_t devices, ap_cluster *c)
{
    if (devices > c->devices_per_host)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "cluster \"%s\": a host of %s has %d devices", text, c->name,
                       (int)c->devices_per_host);
    c->hosts = hosts ? hosts : c->hosts;
    c->devices_per_host = devices ? devices : c->devices_per_host;
    if ((int64_t)c->hosts * c->devices_per_host > AP_CLUSTER_MAX_DEVICES)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "cluster \"%s\": more than %d devices", text, AP_CLUSTER_MAX_DEVICES);
    return AP_OK;
}

/* Of unlike hosts the first ones, in order. */
static ap_status take_part(ap_ctx *ctx, const char *text, int32_t hosts, int32_t devices, ap_cluster *c)
{
    if (c->ngroups == 0)
        return take_uniform(ctx, text, hosts, devices, c);
    ap_cluster *group = ap_arena_memdup(&ctx->arena, c->group, (size_t)c->ngroups * sizeof *group);
    int32_t n = 0, left = hosts;
    for (; n < c->ngroups && (hosts == 0 || left > 0); n++) {
        int32_t taken = hosts == 0 || group[n].hosts < left ? group[n].hosts : left;
        AP_TRY(take_uniform(ctx, text, taken, devices, &group[n]));
        left -= taken;
    }
    if (hosts > 0 && left > 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "cluster \"%s\": %s has %d hosts, of several kinds", text, c->name,
                       (int)(hosts - left));
    ap_cluster_join(ctx, c->name, group, n, c);
    return AP_OK;
}

ap_status ap_cluster_from_preset(ap_ctx *ctx, const char *text, ap_cluster *out)
{
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    int32_t hosts = 1, devices = 0;
    if (colon && !read_part(colon + 1, &hosts, &devices))
        return bad_part(ctx, text);
    if (n == 5 && strncmp(text, "local", 5) == 0) {
        if (hosts != 1)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "cluster \"%s\": local is one host", text);
        ap_cluster_local(devices ? devices : 1, out);
        return AP_OK;
    }
    for (int i = 0; i < NPRESETS; i++)
        if (strlen(presets[i].name) == n && strncmp(presets[i].name, text, n) == 0) {
            cluster_of(&presets[i], out);
            return take_part(ctx, text, hosts, devices, out);
        }
    return unknown(ctx, text);
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t k = strlen(end);
    return n > k && strncmp(s + n - k, end, k) == 0;
}

ap_status ap_cluster_find(ap_ctx *ctx, const char *text, ap_cluster *out)
{
    const char *colon = strrchr(text, ':');
    if (colon && strchr(colon, '/'))
        colon = NULL;
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (!ends_with(text, n, ".yaml") && !ends_with(text, n, ".yml") && !strchr(text, '/'))
        return ap_cluster_from_preset(ctx, text, out);
    int32_t hosts = 0, devices = 0;
    if (colon && !read_part(colon + 1, &hosts, &devices))
        return bad_part(ctx, text);
    AP_TRY(ap_cluster_from_file(ctx, ap_arena_strndup(&ctx->arena, text, n), out));
    return take_part(ctx, text, hosts, devices, out);
}

const char *ap_cost_model_str(ap_cost_model m)
{
    return m == AP_COST_ALPA ? "alpa" : "time";
}

bool ap_cost_model_from_str(const char *s, ap_cost_model *out)
{
    *out = strcmp(s, "alpa") == 0 ? AP_COST_ALPA : AP_COST_TIME;
    return strcmp(s, ap_cost_model_str(*out)) == 0;
}
