/* The machines that we know by name. Numbers are the makers' (peak rates, link widths) or, for `local`,
 * measured on the kind of machine that this is developed on; all of them are per device.
 *
 * A text NAME:HOSTSxDEVICES picks a part: dgx-a100-80gb:1x4 is four devices of one host. */
#include "passes/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GIGA INT64_C(1000000000)
#define TERA INT64_C(1000000000000)
#define MICROSECOND INT64_C(1000000) /* in picoseconds */

typedef struct preset {
    const char *name;
    int32_t devices_per_host;
    int64_t f32, f16, bf16, f64; /* FLOP/s of matrix products; 0: as f32 */
    double efficiency;
    int64_t vector, memory_bandwidth, memory, launch_ps;
    ap_link inside, between;
} preset;

/* `between` is a device's share of its host's network cards. */
static const preset presets[] = {
    {.name = "p3.16xlarge", /* 8 x V100-SXM2 16 GB, 25 Gbit/s a host */
     .devices_per_host = 8,
     .f32 = 15700 * GIGA,
     .f16 = 125 * TERA,
     .f64 = 7800 * GIGA,
     .efficiency = 0.6,
     .vector = 7800 * GIGA,
     .memory_bandwidth = 900 * GIGA,
     .memory = 16 * GIGA,
     .launch_ps = 5 * MICROSECOND,
     .inside = {5 * MICROSECOND, 130 * GIGA},
     .between = {15 * MICROSECOND, 390625000}},
    {.name = "dgx-a100-80gb", /* 8 x A100-SXM4 80 GB, NVLink 3, 8 x 200 Gbit/s a host */
     .devices_per_host = 8,
     .f32 = 19500 * GIGA,
     .f16 = 312 * TERA,
     .bf16 = 312 * TERA,
     .f64 = 19500 * GIGA,
     .efficiency = 0.6,
     .vector = 9700 * GIGA,
     .memory_bandwidth = 2039 * GIGA,
     .memory = 80 * GIGA,
     .launch_ps = 4 * MICROSECOND,
     .inside = {5 * MICROSECOND, 300 * GIGA},
     .between = {10 * MICROSECOND, 25 * GIGA}},
    {.name = "dgx-h100", /* 8 x H100-SXM5 80 GB, NVLink 4, 8 x 400 Gbit/s a host */
     .devices_per_host = 8,
     .f32 = 67 * TERA,
     .f16 = 989 * TERA,
     .bf16 = 989 * TERA,
     .f64 = 67 * TERA,
     .efficiency = 0.6,
     .vector = 33 * TERA,
     .memory_bandwidth = 3350 * GIGA,
     .memory = 80 * GIGA,
     .launch_ps = 4 * MICROSECOND,
     .inside = {5 * MICROSECOND, 450 * GIGA},
     .between = {10 * MICROSECOND, 50 * GIGA}},
};
enum { NPRESETS = sizeof presets / sizeof presets[0] };

#define LOCAL_MEMORY (24 * GIGA)
#define MAX_DEVICES 4096

void ap_cluster_local(int32_t devices, ap_cluster *out)
{
    *out = (ap_cluster){.name = "local",
                        .hosts = 1,
                        .devices_per_host = devices,
                        .contract_efficiency = 0.9,
                        .vector_flops_per_second = 8 * GIGA,
                        .memory_bytes_per_second = 8 * GIGA,
                        .memory_bytes = LOCAL_MEMORY / (devices > 0 ? devices : 1),
                        .launch_ps = MICROSECOND,
                        .inside = {3 * MICROSECOND, 5 * GIGA},
                        .between = {3 * MICROSECOND, 5 * GIGA}};
    out->flops_per_second[AP_F32] = 85 * GIGA;
    out->flops_per_second[AP_F64] = 42 * GIGA;
}

static void cluster_of(const preset *p, ap_cluster *out)
{
    *out = (ap_cluster){.name = p->name,
                        .hosts = 1,
                        .devices_per_host = p->devices_per_host,
                        .contract_efficiency = p->efficiency,
                        .vector_flops_per_second = p->vector,
                        .memory_bytes_per_second = p->memory_bandwidth,
                        .memory_bytes = p->memory,
                        .launch_ps = p->launch_ps,
                        .inside = p->inside,
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

/* A positive decimal number up to MAX_DEVICES; *s moves behind it. */
static bool read_count(const char **s, int32_t *out)
{
    if (**s < '0' || **s > '9')
        return false;
    char *end;
    errno = 0;
    long v = strtol(*s, &end, 10);
    if (errno != 0 || v < 1 || v > MAX_DEVICES)
        return false;
    *s = end;
    *out = (int32_t)v;
    return true;
}

ap_status ap_cluster_from_preset(ap_ctx *ctx, const char *text, ap_cluster *out)
{
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    int32_t hosts = 1, devices = 0;
    if (colon) {
        const char *s = colon + 1;
        bool ok = read_count(&s, &hosts);
        if (ok && *s == 'x') {
            s++;
            ok = read_count(&s, &devices);
        }
        if (!ok || *s != '\0')
            return ap_fail(ctx, AP_ERR_USAGE, 0,
                           "cluster \"%s\": expected NAME:HOSTS or NAME:HOSTSxDEVICES, each 1 to %d", text,
                           MAX_DEVICES);
    }
    if (n == 5 && strncmp(text, "local", 5) == 0) {
        if (hosts != 1)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "cluster \"%s\": local is one host", text);
        ap_cluster_local(devices ? devices : 1, out);
        return AP_OK;
    }
    for (int i = 0; i < NPRESETS; i++) {
        const preset *p = &presets[i];
        if (strlen(p->name) != n || strncmp(p->name, text, n) != 0)
            continue;
        if (devices > p->devices_per_host)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "cluster \"%s\": a host of %s has %d devices", text, p->name,
                           (int)p->devices_per_host);
        cluster_of(p, out);
        out->hosts = hosts;
        if (devices)
            out->devices_per_host = devices;
        return AP_OK;
    }
    return unknown(ctx, text);
}

const ap_link *ap_cluster_link(const ap_cluster *c, const ap_mesh_info *mesh, int axis)
{
    /* Ranks of one group lie `stride` apart; the group stays inside a host when its span does. */
    int64_t span = mesh->axis_size[axis];
    for (int a = axis + 1; a < mesh->naxes; a++)
        span *= mesh->axis_size[a];
    bool inside = c->hosts == 1 ||
                  (span <= c->devices_per_host && c->devices_per_host % span == 0 && mesh->first_rank % span == 0);
    return inside ? &c->inside : &c->between;
}
