/* Cluster files: the machine as its owner describes it, in YAML (docs/clusters.md).
 *
 *     name: lab
 *     cost: time                              (or alpa; may be left out)
 *     groups:                                 (one of each kind of host)
 *       - hosts: 2
 *         devices_per_host: 4
 *         devices_per_socket: 2               (may be left out; then links.sockets too)
 *         links: {...}                        (may be left out: where they are not those of all)
 *         device:
 *           peak: {f32: 19.5 TFLOP/s, bf16: 312 TFLOP/s}
 *           vector: 9.7 TFLOP/s
 *           efficiency: 0.6                (or a curve; docs/clusters.md has the finer figures that may be left out)
 *           launch: 4 us
 *           memory:
 *             - {name: HBM, capacity: 80 GB, bandwidth: 2039 GB/s}
 *     links:
 *       devices: {latency: 5 us, bandwidth: 300 GB/s}
 *       sockets: {latency: 7 us, bandwidth: 32 GB/s, shared: 32 GB/s}
 *       hosts: {latency: 10 us, bandwidth: 25 GB/s, shared: 100 GB/s}
 *
 * libyaml gives a tree with the line of every node; what the keys mean is said here. Every key is known or an
 * error, every number has its unit, and every message names file, line and key. */
#include "passes/cluster.h"

#include "ir/base/file.h"
#include "ir/base/num.h"
#include "ir/base/text.h"

#include <string.h>
#include <yaml.h>

#define MAX_FILE (1u << 17) /* libyaml takes time with the square of the depth: a second at most */
enum { MOST_IN_TILE = 4096 };

typedef struct reader {
    ap_ctx *ctx;
    const char *file;
    yaml_document_t *doc;
} reader;

/* A mapping that is being read; `path` is how messages call its keys. */
typedef struct section {
    reader *r;
    yaml_node_t *node;
    const char *path;
    uint64_t seen; /* bit per pair */
} section;

static ap_status wrong(reader *r, const yaml_node_t *at, const char *key, const char *what)
{
    return ap_fail(r->ctx, AP_ERR_USAGE, 0, "%s:%zu: \"%s\" %s", r->file, at->start_mark.line + 1, key, what);
}

static const char *joined(reader *r, const char *a, const char *b)
{
    return ap_name_str(r->ctx, ap_name_format(r->ctx, "%s%s%s", a, *a ? "." : "", b));
}

static const char *scalar(const yaml_node_t *n)
{
    return (const char *)n->data.scalar.value;
}

/* A scalar may contain NUL bytes ("\0"); as a text it would end there. */
static bool is_text(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE && strlen(scalar(n)) == n->data.scalar.length;
}

/* ---- mappings ---- */

static ap_status open_section(reader *r, yaml_node_t *n, const char *path, section *out)
{
    *out = (section){.r = r, .node = n, .path = path};
    const char *name = *path ? path : "the file";
    if (n->type != YAML_MAPPING_NODE)
        return wrong(r, n, name, "is no mapping (KEY: VALUE)");
    yaml_node_pair_t *p = n->data.mapping.pairs.start, *end = n->data.mapping.pairs.top;
    if (end - p > 64)
        return wrong(r, n, name, "has more than 64 keys");
    for (yaml_node_pair_t *a = p; a < end; a++) {
        yaml_node_t *key = yaml_document_get_node(r->doc, a->key);
        if (!is_text(key))
            return wrong(r, key, name, "has a key that is no text");
        for (yaml_node_pair_t *b = p; b < a; b++)
            if (strcmp(scalar(yaml_document_get_node(r->doc, b->key)), scalar(key)) == 0)
                return wrong(r, key, joined(r, path, scalar(key)), "stands twice");
    }
    return AP_OK;
}

/* NULL when the key is not there. */
static yaml_node_t *find(section *s, const char *key)
{
    yaml_node_pair_t *p = s->node->data.mapping.pairs.start, *end = s->node->data.mapping.pairs.top;
    for (int i = 0; p + i < end; i++)
        if (strcmp(scalar(yaml_document_get_node(s->r->doc, p[i].key)), key) == 0) {
            s->seen |= UINT64_C(1) << i;
            return yaml_document_get_node(s->r->doc, p[i].value);
        }
    return NULL;
}

static ap_status need(section *s, const char *key, yaml_node_t **out)
{
    *out = find(s, key);
    return *out ? AP_OK : wrong(s->r, s->node, joined(s->r, s->path, key), "is missing");
}

/* What was not asked for is unknown. */
static ap_status close_section(const section *s)
{
    yaml_node_pair_t *p = s->node->data.mapping.pairs.start, *end = s->node->data.mapping.pairs.top;
    for (int i = 0; p + i < end; i++) {
        yaml_node_t *key = yaml_document_get_node(s->r->doc, p[i].key);
        if (!(s->seen >> i & 1))
            return wrong(s->r, key, joined(s->r, s->path, scalar(key)), "is no key that is known here");
    }
    return AP_OK;
}

/* ---- quantities ---- */

typedef struct unit {
    const char *name;
    int64_t times, over; /* value in base units = number * times / over */
} unit;

#define K INT64_C(1000)
#define M (K * K)
#define G (K * M)
#define T (K * G)
#define P (K * T)

static const unit rates[] = {{"FLOP/s", 1, 1},  {"kFLOP/s", K, 1}, {"MFLOP/s", M, 1}, {"GFLOP/s", G, 1},
                             {"TFLOP/s", T, 1}, {"PFLOP/s", P, 1}, {NULL, 0, 0}};
static const unit works[] = {{"FLOP", 1, 1},  {"kFLOP", K, 1}, {"MFLOP", M, 1},
                             {"GFLOP", G, 1}, {"TFLOP", T, 1}, {NULL, 0, 0}};
static const unit bandwidths[] = {{"B/s", 1, 1},         {"kB/s", K, 1},        {"MB/s", M, 1},
                                  {"GB/s", G, 1},        {"TB/s", T, 1},        {"KiB/s", INT64_C(1) << 10, 1},
                                  {"MiB/s", 1 << 20, 1}, {"GiB/s", 1 << 30, 1}, {"TiB/s", INT64_C(1) << 40, 1},
                                  {"Mbit/s", M, 8},      {"Gbit/s", G, 8},      {"Tbit/s", T, 8},
                                  {NULL, 0, 0}};
static const unit sizes[] = {
    {"B", 1, 1},  {"kB", K, 1},        {"MB", M, 1},        {"GB", G, 1},        {"TB", T, 1},
    {"PB", P, 1}, {"KiB", 1 << 10, 1}, {"MiB", 1 << 20, 1}, {"GiB", 1 << 30, 1}, {"TiB", INT64_C(1) << 40, 1},
    {NULL, 0, 0}};
static const unit elements[] = {{"/s", 1, 1}, {"k/s", K, 1}, {"M/s", M, 1}, {"G/s", G, 1}, {"T/s", T, 1}, {NULL, 0, 0}};
static const unit times[] = {{"ps", 1, 1}, {"ns", K, 1}, {"us", M, 1}, {"ms", G, 1}, {"s", T, 1}, {NULL, 0, 0}};

/* A decimal number as digits / 10^scale, exactly; *s moves behind it. */
static bool read_decimal(const char **s, int64_t *out_digits, int64_t *out_pow)
{
    int64_t digits = 0, pow = 1;
    bool any = false, point = false;
    for (;; (*s)++) {
        if (**s == '.' && !point) {
            point = true;
            continue;
        }
        if (**s < '0' || **s > '9')
            break;
        any = true;
        if (!ap_mul_i64(digits, 10, &digits) || !ap_add_i64(digits, **s - '0', &digits) ||
            (point && !ap_mul_i64(pow, 10, &pow)))
            return false;
    }
    *out_digits = digits;
    *out_pow = pow;
    return any;
}

/* Rounded down to a whole number of base units; at most INT64_MAX / 1024, so that later products stay apart from
 * overflow. */
static bool read_quantity(const char *s, const unit *units, int64_t *out)
{
    int64_t digits, pow;
    if (!read_decimal(&s, &digits, &pow))
        return false;
    while (*s == ' ')
        s++;
    for (const unit *u = units; u->name; u++)
        if (strcmp(s, u->name) == 0) {
            __int128 v = (__int128)digits * u->times / ((__int128)pow * u->over);
            if (v > INT64_MAX / 1024)
                return false;
            *out = (int64_t)v;
            return true;
        }
    return false;
}

static ap_status get_quantity(section *s, const char *key, const unit *units, const char *like, int64_t least,
                              int64_t *out)
{
    yaml_node_t *n;
    AP_TRY(need(s, key, &n));
    int64_t v;
    if (is_text(n) && read_quantity(scalar(n), units, &v) && v >= least) {
        *out = v;
        return AP_OK;
    }
    const char *what =
        is_text(n)
            ? ap_name_str(s->r->ctx, ap_name_format(s->r->ctx, "is '%s', expected a value like %s", scalar(n), like))
            : "is no single value";
    return wrong(s->r, n, joined(s->r, s->path, key), what);
}

static ap_status get_count(section *s, const char *key, int64_t most, int32_t *out)
{
    static const unit plain[] = {{"", 1, 1}, {NULL, 0, 0}};
    yaml_node_t *n;
    AP_TRY(need(s, key, &n));
    int64_t v;
    if (!is_text(n) || strchr(scalar(n), '.') || !read_quantity(scalar(n), plain, &v) || v < 1 || v > most)
        return wrong(
            s->r, n, joined(s->r, s->path, key),
            ap_name_str(s->r->ctx, ap_name_format(s->r->ctx, "is no whole number from 1 to %lld", (long long)most)));
    *out = (int32_t)v;
    return AP_OK;
}

static ap_status get_text(section *s, const char *key, const char **out)
{
    yaml_node_t *n;
    AP_TRY(need(s, key, &n));
    if (!is_text(n) || !*scalar(n))
        return wrong(s->r, n, joined(s->r, s->path, key), "is no text");
    for (const char *c = scalar(n); *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return wrong(s->r, n, joined(s->r, s->path, key), "holds a line break or another control character");
    *out = ap_arena_strdup(&s->r->ctx->arena, scalar(n));
    return AP_OK;
}

/* In (0, 1]. */
static ap_status get_fraction(section *s, const char *key, double *out)
{
    yaml_node_t *n;
    AP_TRY(need(s, key, &n));
    int64_t digits = 0, pow = 1;
    const char *t = is_text(n) ? scalar(n) : "";
    if (!read_decimal(&t, &digits, &pow) || *t || digits < 1 || digits > pow)
        return wrong(s->r, n, joined(s->r, s->path, key), "is no number above 0, up to 1");
    *out = (double)digits / (double)pow;
    return AP_OK;
}

/* ---- what a file has ---- */

/* One number, or points of a curve: [{work: 2 MFLOP, reached: 0.5}, ...]. */
static ap_status read_efficiency(section *s, ap_cluster *out)
{
    yaml_node_t *n;
    AP_TRY(need(s, "efficiency", &n));
    if (n->type != YAML_SEQUENCE_NODE)
        return get_fraction(s, "efficiency", &out->contract_efficiency);
    const char *path = joined(s->r, s->path, "efficiency");
    yaml_node_item_t *item = n->data.sequence.items.start;
    ptrdiff_t count = n->data.sequence.items.top - item;
    if (count < 1 || count > AP_MAX_REACHED)
        return wrong(s->r, n, path, "lists no point, or more than 16");
    out->contract_efficiency = 0;
    out->nreached = (int32_t)count;
    for (ptrdiff_t i = 0; i < count; i++) {
        section point;
        ap_reached *r = &out->reached[i];
        yaml_node_t *at = yaml_document_get_node(s->r->doc, item[i]);
        AP_TRY(open_section(s->r, at, ap_name_str(s->r->ctx, ap_name_format(s->r->ctx, "%s[%td]", path, i)), &point));
        AP_TRY(get_quantity(&point, "work", works, "2 MFLOP", 1, &r->flops));
        AP_TRY(get_fraction(&point, "reached", &r->fraction));
        AP_TRY(close_section(&point));
        if (i > 0 && r->flops <= r[-1].flops)
            return wrong(s->r, at, point.path, "is not larger than the point before it");
        out->contract_efficiency = r->fraction > out->contract_efficiency ? r->fraction : out->contract_efficiency;
    }
    return AP_OK;
}

static ap_status read_cache(reader *r, yaml_node_t *n, const char *path, ap_cache *out)
{
    section s;
    AP_TRY(open_section(r, n, path, &s));
    AP_TRY(get_quantity(&s, "capacity", sizes, "1 MB", 1, &out->bytes));
    AP_TRY(get_quantity(&s, "bandwidth", bandwidths, "100 GB/s", 1, &out->bytes_per_second));
    return close_section(&s);
}

/* How long the list is: 1 to `most`. */
static ap_status open_list(reader *r, yaml_node_t *n, const char *path, int32_t most, const char *otherwise,
                           int32_t *out)
{
    ptrdiff_t count = n->data.sequence.items.top - n->data.sequence.items.start;
    if (count < 1 || count > most)
        return wrong(r, n, path, otherwise);
    *out = (int32_t)count;
    return AP_OK;
}

static yaml_node_t *list_item(reader *r, yaml_node_t *n, const char *path, int32_t i, const char **out_path)
{
    *out_path = ap_name_str(r->ctx, ap_name_format(r->ctx, "%s[%d]", path, (int)i));
    return yaml_document_get_node(r->doc, n->data.sequence.items.start[i]);
}

/* One, or a list from near to far. */
static ap_status read_caches(reader *r, yaml_node_t *n, const char *path, ap_cluster *out)
{
    if (n->type != YAML_SEQUENCE_NODE) {
        out->ncaches = 1;
        return read_cache(r, n, path, &out->cache[0]);
    }
    AP_TRY(open_list(r, n, path, AP_MAX_CACHES, "lists no cache, or more than 4", &out->ncaches));
    for (int32_t i = 0; i < out->ncaches; i++) {
        const char *name;
        yaml_node_t *at = list_item(r, n, path, i, &name);
        AP_TRY(read_cache(r, at, name, &out->cache[i]));
        if (i > 0 && out->cache[i].bytes <= out->cache[i - 1].bytes)
            return wrong(r, at, name, "is not larger than the cache before it");
    }
    return AP_OK;
}

/* One number, or one of each kind, and what calls and steps take. */
static ap_status read_convolutions(section *device, ap_cluster *out)
{
    static const char *const key[AP_PRODUCT_KINDS] = {
        [AP_PRODUCT_SPATIAL] = "spatial", [AP_PRODUCT_POINTWISE] = "pointwise", [AP_PRODUCT_DEPTHWISE] = "depthwise"};
    yaml_node_t *n = find(device, "convolutions");
    section s;
    if (n->type != YAML_MAPPING_NODE) {
        AP_TRY(get_fraction(device, "convolutions", &out->conv_efficiency[AP_PRODUCT_SPATIAL]));
        for (int k = AP_PRODUCT_SPATIAL + 1; k < AP_PRODUCT_KINDS; k++)
            out->conv_efficiency[k] = out->conv_efficiency[AP_PRODUCT_SPATIAL];
        return AP_OK;
    }
    AP_TRY(open_section(device->r, n, joined(device->r, device->path, "convolutions"), &s));
    for (int k = AP_PRODUCT_SPATIAL; k < AP_PRODUCT_KINDS; k++)
        AP_TRY(get_fraction(&s, key[k], &out->conv_efficiency[k]));
    if (find(&s, "call"))
        AP_TRY(get_quantity(&s, "call", times, "1 us", 0, &out->conv_call_ps));
    if (find(&s, "steps"))
        AP_TRY(get_quantity(&s, "steps", elements, "4 G/s", 1, &out->conv_step_elements_per_second));
    return close_section(&s);
}

/* Tiles and calls of matrix products. */
static ap_status read_products(section *device, ap_cluster *out)
{
    section s;
    AP_TRY(open_section(device->r, find(device, "products"), joined(device->r, device->path, "products"), &s));
    if (find(&s, "columns"))
        AP_TRY(get_count(&s, "columns", MOST_IN_TILE, &out->tile_columns));
    if (find(&s, "depth"))
        AP_TRY(get_count(&s, "depth", MOST_IN_TILE, &out->tile_depth));
    if (find(&s, "call"))
        AP_TRY(get_quantity(&s, "call", times, "100 ns", 0, &out->product_call_ps));
    return close_section(&s);
}

/* What may be left out of the figures of computing. */
static ap_status read_finer(section *s, ap_cluster *out)
{
    if (find(s, "functions"))
        AP_TRY(get_quantity(s, "functions", rates, "8 GFLOP/s", 1, &out->function_flops_per_second));
    if (find(s, "lanes"))
        AP_TRY(get_count(s, "lanes", MOST_IN_TILE, &out->lanes));
    if (find(s, "fold"))
        AP_TRY(get_quantity(s, "fold", times, "8 ns", 0, &out->fold_ps));
    if (find(s, "products"))
        AP_TRY(read_products(s, out));
    return find(s, "convolutions") ? read_convolutions(s, out) : AP_OK;
}

static ap_status read_peak(reader *r, yaml_node_t *n, const char *path, ap_cluster *out)
{
    section s;
    AP_TRY(open_section(r, n, path, &s));
    AP_TRY(get_quantity(&s, "f32", rates, "19.5 TFLOP/s", 1, &out->flops_per_second[AP_F32]));
    for (int t = 1; t < AP_DTYPE_COUNT; t++)
        if (t != AP_F32 && find(&s, ap_dtype_str((ap_dtype)t)))
            AP_TRY(get_quantity(&s, ap_dtype_str((ap_dtype)t), rates, "312 TFLOP/s", 1, &out->flops_per_second[t]));
    return close_section(&s);
}

static ap_status read_tier(reader *r, yaml_node_t *n, const char *path, ap_memory_tier *out)
{
    section s;
    AP_TRY(open_section(r, n, path, &s));
    *out = (ap_memory_tier){.shared_by = 1};
    AP_TRY(get_text(&s, "name", &out->name));
    AP_TRY(get_quantity(&s, "capacity", sizes, "80 GB", 1, &out->bytes));
    AP_TRY(get_quantity(&s, "bandwidth", bandwidths, "2 TB/s", 1, &out->bytes_per_second));
    if (find(&s, "latency"))
        AP_TRY(get_quantity(&s, "latency", times, "2 us", 0, &out->latency_ps));
    if (find(&s, "shared_by"))
        AP_TRY(get_count(&s, "shared_by", AP_CLUSTER_MAX_DEVICES, &out->shared_by));
    return close_section(&s);
}

static ap_status read_memory(reader *r, yaml_node_t *n, const char *path, ap_cluster *out)
{
    if (n->type != YAML_SEQUENCE_NODE)
        return wrong(r, n, path, "is no list of memories");
    AP_TRY(open_list(r, n, path, AP_MAX_TIERS, "lists no memory, or more than 8", &out->ntiers));
    for (int32_t i = 0; i < out->ntiers; i++) {
        const char *name;
        yaml_node_t *at = list_item(r, n, path, i, &name);
        AP_TRY(read_tier(r, at, name, &out->tier[i]));
    }
    if (out->tier[0].shared_by != 1)
        return wrong(r, n, path, "begins with a memory that devices share: the first is a device's own");
    out->memory_bytes = out->tier[0].bytes;
    out->memory_bytes_per_second = out->tier[0].bytes_per_second;
    return AP_OK;
}

/* Whether what a stage receives is copied by its devices, which wait for it, or goes on beside computing. */
static ap_status read_transfers(section *s, bool *out)
{
    const char *text;
    AP_TRY(get_text(s, "transfers", &text));
    *out = strcmp(text, "wait") == 0;
    if (*out || strcmp(text, "overlap") == 0)
        return AP_OK;
    return wrong(s->r, find(s, "transfers"), joined(s->r, s->path, "transfers"), "is neither overlap nor wait");
}

/* What the devices are: processors of the host, or GPUs. */
static ap_status read_kind(section *s, bool *out_cpu)
{
    const char *text;
    AP_TRY(get_text(s, "kind", &text));
    *out_cpu = strcmp(text, "cpu") == 0;
    if (*out_cpu || strcmp(text, "gpu") == 0)
        return AP_OK;
    return wrong(s->r, find(s, "kind"), joined(s->r, s->path, "kind"), "is neither cpu nor gpu");
}

static ap_status read_device(reader *r, yaml_node_t *n, const char *path, ap_cluster *out)
{
    section s;
    yaml_node_t *peak, *memory;
    AP_TRY(open_section(r, n, path, &s));
    AP_TRY(need(&s, "peak", &peak));
    AP_TRY(read_peak(r, peak, joined(r, path, "peak"), out));
    AP_TRY(get_quantity(&s, "vector", rates, "9.7 TFLOP/s", 1, &out->vector_flops_per_second));
    AP_TRY(read_efficiency(&s, out));
    AP_TRY(read_finer(&s, out));
    yaml_node_t *cache = find(&s, "cache");
    if (cache)
        AP_TRY(read_caches(r, cache, joined(r, path, "cache"), out));
    AP_TRY(get_quantity(&s, "launch", times, "4 us", 0, &out->launch_ps));
    if (find(&s, "transfers"))
        AP_TRY(read_transfers(&s, &out->transfers_wait));
    out->cpu = out->transfers_wait; /* as processors do */
    if (find(&s, "kind"))
        AP_TRY(read_kind(&s, &out->cpu));
    AP_TRY(need(&s, "memory", &memory));
    AP_TRY(read_memory(r, memory, joined(r, path, "memory"), out));
    return close_section(&s);
}

/* ---- links ---- */

/* The levels that a mapping has; those that it has not are left as they are. */
typedef struct links {
    bool has[AP_LEVEL_COUNT];
    ap_level level[AP_LEVEL_COUNT];
    yaml_node_t *node; /* NULL: the file has none */
    const char *path;
} links;

/* What leaves a socket or a host may go through something shared; a device has its own links. */
static ap_status read_level(reader *r, yaml_node_t *n, const char *path, bool may_share, ap_level *out)
{
    section s;
    AP_TRY(open_section(r, n, path, &s));
    AP_TRY(get_quantity(&s, "latency", times, "5 us", 0, &out->latency_ps));
    out->shared_bytes_per_second = 0;
    bool shared = may_share && find(&s, "shared");
    if (shared)
        AP_TRY(get_quantity(&s, "shared", bandwidths, "100 Gbit/s", 1, &out->shared_bytes_per_second));
    out->bytes_per_second = out->shared_bytes_per_second;
    if (!shared || find(&s, "bandwidth"))
        AP_TRY(get_quantity(&s, "bandwidth", bandwidths, "300 GB/s or 200 Gbit/s", 1, &out->bytes_per_second));
    return close_section(&s);
}

static ap_status read_links(reader *r, yaml_node_t *n, const char *path, links *out)
{
    static const char *const key[AP_LEVEL_COUNT] = {"devices", "sockets", "hosts"};
    section s;
    AP_TRY(open_section(r, n, path, &s));
    out->node = n;
    out->path = path;
    for (int i = 0; i < AP_LEVEL_COUNT; i++) {
        yaml_node_t *level = find(&s, key[i]);
        if (!level)
            continue;
        out->has[i] = true;
        AP_TRY(read_level(r, level, joined(r, path, key[i]), i > AP_LEVEL_INSIDE, &out->level[i]));
    }
    return close_section(&s);
}

/* A level that joins nothing may be left out; it then repeats the next one. */
static ap_status give_links(reader *r, const links *l, bool several, ap_cluster *g)
{
    if (!l->node)
        return wrong(r, yaml_document_get_root_node(r->doc), "links", "is missing");
    if (!l->has[AP_LEVEL_INSIDE] && (g->devices_per_host > 1 || !l->has[AP_LEVEL_BETWEEN]))
        return wrong(r, l->node, joined(r, l->path, "devices"), "is missing");
    if (!l->has[AP_LEVEL_ACROSS] && g->island > 0)
        return wrong(r, l->node, joined(r, l->path, "sockets"), "is missing, there are devices_per_socket");
    if (!l->has[AP_LEVEL_BETWEEN] && (several || g->hosts > 1))
        return wrong(r, l->node, joined(r, l->path, "hosts"), "is missing");
    g->inside = l->level[l->has[AP_LEVEL_INSIDE] ? AP_LEVEL_INSIDE : AP_LEVEL_BETWEEN];
    g->across = l->level[AP_LEVEL_ACROSS];
    if (g->island == 0)
        g->across = g->inside;
    g->between = l->level[l->has[AP_LEVEL_BETWEEN] ? AP_LEVEL_BETWEEN : AP_LEVEL_INSIDE];
    return AP_OK;
}

/* ---- groups ---- */

static ap_status read_socket(section *s, ap_cluster *g)
{
    yaml_node_t *n = find(s, "devices_per_socket");
    if (!n)
        return AP_OK;
    AP_TRY(get_count(s, "devices_per_socket", AP_CLUSTER_MAX_DEVICES, &g->island));
    if (g->devices_per_host % g->island != 0)
        return wrong(s->r, n, joined(s->r, s->path, "devices_per_socket"), "does not divide devices_per_host");
    if (g->island == g->devices_per_host)
        g->island = 0;
    return AP_OK;
}

/* Its own links, where it has some, go before those of all. */
static ap_status read_group(reader *r, yaml_node_t *n, const char *path, const links *all, bool several,
                            ap_cluster *out)
{
    section s;
    yaml_node_t *device;
    links l = *all;
    AP_TRY(open_section(r, n, path, &s));
    AP_TRY(get_count(&s, "hosts", AP_CLUSTER_MAX_DEVICES, &out->hosts));
    AP_TRY(get_count(&s, "devices_per_host", AP_CLUSTER_MAX_DEVICES, &out->devices_per_host));
    if ((int64_t)out->hosts * out->devices_per_host > AP_CLUSTER_MAX_DEVICES)
        return wrong(r, n, path, "has more than 65536 devices");
    AP_TRY(read_socket(&s, out));
    AP_TRY(need(&s, "device", &device));
    AP_TRY(read_device(r, device, joined(r, path, "device"), out));
    yaml_node_t *own = find(&s, "links");
    if (own)
        AP_TRY(read_links(r, own, joined(r, path, "links"), &l));
    AP_TRY(give_links(r, &l, several, out));
    return close_section(&s);
}

static ap_status read_groups(reader *r, yaml_node_t *n, const links *all, ap_cluster *out)
{
    ap_cluster group[AP_MAX_GROUPS];
    if (n->type != YAML_SEQUENCE_NODE || n->data.sequence.items.start == n->data.sequence.items.top)
        return wrong(r, n, "groups", "is no list of groups of hosts");
    ptrdiff_t count = n->data.sequence.items.top - n->data.sequence.items.start;
    if (count > AP_MAX_GROUPS)
        return wrong(r, n, "groups", "lists more than 64 groups");
    int64_t devices = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        const char *path = ap_name_str(r->ctx, ap_name_format(r->ctx, "groups[%td]", i));
        group[i] = (ap_cluster){.name = out->name, .cost = out->cost};
        AP_TRY(read_group(r, yaml_document_get_node(r->doc, n->data.sequence.items.start[i]), path, all, count > 1,
                          &group[i]));
        devices += ap_cluster_devices(&group[i]);
        if (out->cost == AP_COST_ALPA)
            group[i].launch_ps = 0; /* computing is free */
    }
    if (devices > AP_CLUSTER_MAX_DEVICES)
        return wrong(r, n, "groups", "have more than 65536 devices");
    ap_cluster_join(r->ctx, out->name, group, (int32_t)count, out);
    return AP_OK;
}

static ap_status read_cost(section *s, ap_cluster *out)
{
    const char *text;
    if (!find(s, "cost"))
        return AP_OK;
    AP_TRY(get_text(s, "cost", &text));
    if (ap_cost_model_from_str(text, &out->cost))
        return AP_OK;
    return wrong(s->r, find(s, "cost"), "cost", "is neither time nor alpa");
}

static ap_status read_root(reader *r, ap_cluster *out)
{
    yaml_node_t *root = yaml_document_get_root_node(r->doc), *groups, *node;
    links all = {0};
    if (!root)
        return ap_fail(r->ctx, AP_ERR_USAGE, 0, "%s: is empty", r->file);
    section s;
    AP_TRY(open_section(r, root, "", &s));
    AP_TRY(get_text(&s, "name", &out->name));
    AP_TRY(read_cost(&s, out));
    AP_TRY(need(&s, "groups", &groups));
    node = find(&s, "links");
    if (node)
        AP_TRY(read_links(r, node, "links", &all));
    AP_TRY(read_groups(r, groups, &all, out));
    return close_section(&s);
}

/* ---- YAML ---- */

static void delete_document(void *doc)
{
    yaml_document_delete(doc);
}

static ap_status no_yaml(ap_ctx *ctx, const char *file, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: out of memory", file);
    size_t line = p->error == YAML_READER_ERROR ? p->mark.line : p->problem_mark.line;
    return ap_fail(ctx, AP_ERR_USAGE, 0, "%s:%zu: not YAML: %s", file, line + 1, p->problem ? p->problem : "?");
}

/* The tree lives as long as the context, so that leaving by the way out of memory does not lose it. */
static ap_status load(ap_ctx *ctx, const char *file, const char *text, size_t size, yaml_document_t *doc)
{
    yaml_parser_t p;
    if (!yaml_parser_initialize(&p))
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: out of memory", file);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, size);
    bool ok = yaml_parser_load(&p, doc);
    bool one = true;
    if (ok) {
        yaml_document_t more;
        one = yaml_parser_load(&p, &more) && !yaml_document_get_root_node(&more);
        if (!p.error)
            yaml_document_delete(&more);
    }
    ap_status s = AP_OK;
    if (p.error)
        s = no_yaml(ctx, file, &p);
    else if (!one)
        s = ap_fail(ctx, AP_ERR_USAGE, 0, "%s: has several documents, one cluster is expected", file);
    yaml_parser_delete(&p);
    return s;
}

ap_status ap_cluster_from_text(ap_ctx *ctx, const char *file, const char *text, size_t size, ap_cluster *out)
{
    *out = (ap_cluster){.name = ""};
    if (size > MAX_FILE)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "%s: larger than 128 KiB, this is no cluster file", file);
    yaml_document_t *doc = AP_NEW(&ctx->arena, yaml_document_t);
    ap_ctx_on_release(ctx, delete_document, doc);
    AP_TRY(load(ctx, file, text, size, doc));
    reader r = {.ctx = ctx, .file = file, .doc = doc};
    return read_root(&r, out);
}

ap_status ap_cluster_from_file(ap_ctx *ctx, const char *path, ap_cluster *out)
{
    ap_file f;
    AP_TRY(ap_file_map(ctx, path, &f));
    if (f.size > MAX_FILE) {
        ap_file_unmap(&f);
        return ap_fail(ctx, AP_ERR_USAGE, 0, "%s: larger than 128 KiB, this is no cluster file", path);
    }
    char *text = ap_arena_memdup(&ctx->arena, f.data ? (const void *)f.data : "", (size_t)f.size);
    size_t size = (size_t)f.size;
    ap_file_unmap(&f);
    return ap_cluster_from_text(ctx, path, text, size, out);
}
