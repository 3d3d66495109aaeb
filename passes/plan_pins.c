/* Pins: what the user decides for the planner.
 *
 *     # comment, also behind a pin
 *     value PATTERN SHARDING        value fc1* @m[-,tp]
 *     value PATTERN forbid AXIS     value h*   forbid dp
 *     node PATTERN stage=K          node layer.7.* stage=1
 *
 * A pin takes labels away from the values that it names (by value name, by the name of the node that makes
 * them, or by an output's or parameter's name), so what is left is still optimal among the allowed. */
#include "ir/base/file.h"
#include "ir/base/text.h"
#include "ir/text_form.h"
#include "passes/plan_problem.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

typedef struct word {
    const char *s;
    size_t n;
} word;

static word next_word(word *rest)
{
    while (rest->n && (*rest->s == ' ' || *rest->s == '\t' || *rest->s == '\r'))
        rest->s++, rest->n--;
    word w = {rest->s, 0};
    while (rest->n && *rest->s != ' ' && *rest->s != '\t' && *rest->s != '\r')
        rest->s++, rest->n--, w.n++;
    return w;
}

static bool is(word w, const char *s)
{
    return w.n == strlen(s) && memcmp(w.s, s, w.n) == 0;
}

/* What is left of the line, without spaces around. */
static word trimmed(word rest)
{
    while (rest.n && (*rest.s == ' ' || *rest.s == '\t'))
        rest.s++, rest.n--;
    while (rest.n && (rest.s[rest.n - 1] == ' ' || rest.s[rest.n - 1] == '\t' || rest.s[rest.n - 1] == '\r'))
        rest.n--;
    return rest;
}

/* Without a comment: `#` with a space before it. */
static word without_comment(word rest)
{
    for (size_t i = 1; i < rest.n; i++)
        if (rest.s[i] == '#' && (rest.s[i - 1] == ' ' || rest.s[i - 1] == '\t'))
            rest.n = i;
    return rest;
}

/* After "node". */
static ap_status read_node(ap_ctx *ctx, const char *path, int line, word rest, ap_node_pin *out)
{
    word pattern = next_word(&rest);
    rest = without_comment(rest);
    word what = next_word(&rest);
    const char *text = ap_arena_strndup(&ctx->arena, what.s, what.n);
    char *end = NULL;
    long stage = strncmp(text, "stage=", 6) == 0 && text[6] >= '0' && text[6] <= '9' ? strtol(text + 6, &end, 10) : -1;
    if (stage < 0 || stage > 9999 || *end || trimmed(rest).n != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "%s:%d: expected \"node PATTERN stage=K\"", path, line);
    *out = (ap_node_pin){ap_arena_strndup(&ctx->arena, pattern.s, pattern.n), (uint32_t)stage, line};
    return AP_OK;
}

/* After "value". */
static ap_status read_value(ap_ctx *ctx, const char *path, int line, word rest, ap_pin *out)
{
    word pattern = next_word(&rest);
    rest = without_comment(rest);
    word save = rest, what = next_word(&rest);
    *out = (ap_pin){.pattern = ap_arena_strndup(&ctx->arena, pattern.s, pattern.n), .line = line};
    if (is(what, "forbid")) {
        word axis = next_word(&rest);
        out->forbid = ap_arena_strndup(&ctx->arena, axis.s, axis.n);
        if (axis.n == 0 || trimmed(rest).n != 0)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "%s:%d: expected one axis after forbid", path, line);
        return AP_OK;
    }
    word sharding = trimmed(save);
    if (sharding.n == 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "%s:%d: expected a sharding or \"forbid AXIS\"", path, line);
    out->sharding = ap_arena_strndup(&ctx->arena, sharding.s, sharding.n);
    return AP_OK;
}

typedef struct reader {
    ap_ctx *ctx;
    const char *path;
    AP_VEC(ap_pin) pins;
    AP_VEC(ap_node_pin) nodes;
} reader;

static ap_status read_line(reader *r, int line, word rest)
{
    word kind = next_word(&rest);
    if (kind.n == 0 || kind.s[0] == '#')
        return AP_OK;
    if (is(kind, "node")) {
        ap_node_pin pin;
        AP_TRY(read_node(r->ctx, r->path, line, rest, &pin));
        ap_vec_push(&r->ctx->arena, &r->nodes, pin);
        return AP_OK;
    }
    if (!is(kind, "value"))
        return ap_fail(r->ctx, AP_ERR_USAGE, 0,
                       "%s:%d: expected \"value PATTERN SHARDING\", \"value PATTERN forbid AXIS\" or \"node PATTERN "
                       "stage=K\"",
                       r->path, line);
    ap_pin pin;
    AP_TRY(read_value(r->ctx, r->path, line, rest, &pin));
    ap_vec_push(&r->ctx->arena, &r->pins, pin);
    return AP_OK;
}

ap_status ap_pins_read(ap_ctx *ctx, const char *path, ap_pins *out)
{
    ap_file file;
    reader r = {.ctx = ctx, .path = path};
    AP_TRY(ap_file_map(ctx, path, &file));
    ap_status status = AP_OK;
    const char *s = (const char *)file.data, *end = s + file.size;
    for (int line = 1; status == AP_OK && s < end; line++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        stop = stop ? stop : end;
        status = read_line(&r, line, (word){s, (size_t)(stop - s)});
        s = stop < end ? stop + 1 : end;
    }
    ap_file_unmap(&file);
    *out = (ap_pins){.n = r.pins.len, .nnodes = r.nodes.len, .pin = r.pins.at, .node = r.nodes.at};
    return status;
}

/* ---- matching ---- */

static bool name_matches(const ap_planning *p, const char *pattern, ap_name name)
{
    return name && fnmatch(pattern, ap_name_str(p->ctx, name), 0) == 0;
}

static bool output_matches(const ap_planning *p, const char *pattern, ap_value v)
{
    const ap_func_info *f = &p->m->funcs.at[p->func];
    const ap_block_info *b = ap_block_at(p->m, p->block);
    const ap_node_info *ret = ap_node_at(p->m, b->nodes.at[b->nodes.len - 1]);
    for (uint32_t i = 0; i < ret->nin && i < f->nresults && f->result_name; i++)
        if (ret->in[i] == v && name_matches(p, pattern, f->result_name[i]))
            return true;
    return false;
}

static bool pin_matches(const ap_planning *p, const ap_pin *pin, ap_value v)
{
    const ap_value_info *info = ap_value_at(p->m, v);
    if (name_matches(p, pin->pattern, info->name) || output_matches(p, pin->pattern, v))
        return true;
    if (info->kind == AP_VALUE_SYMBOL)
        return name_matches(p, pin->pattern, p->m->symbols.at[info->def].name);
    if (info->kind == AP_VALUE_RESULT)
        return name_matches(p, pin->pattern, ap_loc_get(p->ctx, ap_node_at(p->m, info->def)->loc).node);
    return false;
}

/* ---- applying ---- */

static ap_status forbid_axis(ap_planning *p, const ap_pin *pin, uint32_t n, const ap_sharding *kept, bool *keep)
{
    const ap_mesh_info *mesh = &p->m->meshes.at[p->mesh];
    int axis = -1;
    for (int a = 0; a < mesh->naxes; a++)
        if (strcmp(ap_name_str(p->ctx, mesh->axis_name[a]), pin->forbid) == 0)
            axis = a;
    if (axis >= 0 && axis < mesh->ntime)
        return ap_fail(p->ctx, AP_ERR_USAGE, 0, "%s:%d: \"%s\" is time, which no pin moves", p->opt->pin_file,
                       pin->line, pin->forbid);
    if (axis < 0)
        return ap_fail(p->ctx, AP_ERR_USAGE, 0, "%s:%d: the mesh has no axis \"%s\"", p->opt->pin_file, pin->line,
                       pin->forbid);
    for (uint32_t l = 0; l < n; l++) {
        const ap_sharding_info *s = ap_sharding_get(p->ctx, kept[l]);
        if ((ap_sharding_split_mask(s) | ap_sharding_partial_mask(s)) >> axis & 1)
            keep[l] = false;
    }
    return AP_OK;
}

/* The first factor whose shards would not be equal, -1 for none. */
static int uneven_factor(const ap_planning *p, const ap_shape_info *shape, const ap_sharding_info *s)
{
    for (int f = 0; f < shape->nfactors; f++)
        if (shape->physical[f] % ap_mesh_axes_size(&p->m->meshes.at[p->mesh], s->axes[f]) != 0)
            return f;
    return -1;
}

/* Pins speak of devices; what depends on the batch is cut into microbatches all the same. */
static ap_sharding with_time(const ap_planning *p, ap_value v, ap_sharding s)
{
    ap_sharding_info info = *ap_sharding_get(p->ctx, s);
    uint8_t time = ap_mesh_time_mask(&p->m->meshes.at[p->mesh]);
    if (!time || !p->batch || p->batch->factor[v] == AP_NO_BATCH || ap_sharding_split_mask(&info) & time)
        return s;
    ap_axes *axes = &info.axes[p->batch->factor[v]];
    *axes = ap_axes_append(0, 0) | *axes << 4;
    return ap_sharding_intern(p->ctx, &info);
}

static const char *pinned_on(ap_planning *p, int line)
{
    return ap_name_str(p->ctx, ap_name_format(p->ctx, "it is pinned otherwise on line %d", line));
}

/* `by`: per label the line of the pin that took it away, 0 for none. */
static ap_status pin_sharding(ap_planning *p, const ap_pin *pin, ap_value v, uint32_t n, const ap_sharding *kept,
                              bool *keep, const int *by)
{
    ap_shape shape = ap_type_get(p->ctx, ap_value_type(p->m, v)).shape;
    const ap_shape_info *info = ap_shape_get(p->ctx, shape);
    const char *name = ap_planning_name(p, v);
    ap_sharding s;
    uint32_t told = p->ctx->diags.len;
    if (ap_sharding_parse(p->m, pin->sharding, shape, &s) != AP_OK) {
        ap_text text;
        ap_text_init(&text, p->arena);
        ap_shape_print(info, &text);
        const char *why = p->ctx->diags.at[told].text;
        p->ctx->diags.len = told; /* one message: the reason is a part of it */
        return ap_fail(p->ctx, AP_ERR_USAGE, 0, "%s:%d: \"%s\" is no sharding of \"%s\", whose shape is %s: %s",
                       p->opt->pin_file, pin->line, pin->sharding, name, ap_text_str(&text), why);
    }
    s = with_time(p, v, s);
    int uneven = uneven_factor(p, info, ap_sharding_get(p->ctx, s));
    if (uneven >= 0)
        return ap_fail(p->ctx, AP_ERR_USAGE, 0, "%s:%d: \"%s\" splits a factor of %lld of \"%s\" into unequal parts",
                       p->opt->pin_file, pin->line, pin->sharding, (long long)info->physical[uneven], name);
    bool any = false;
    int line = 0;
    for (uint32_t l = 0; l < n; l++) {
        line = kept[l] == s && by[l] ? by[l] : line;
        keep[l] = keep[l] && kept[l] == s;
        any = any || keep[l];
    }
    if (!any)
        return ap_fail(p->ctx, AP_ERR_USAGE, 0, "%s:%d: \"%s\" cannot be kept as \"%s\": %s", p->opt->pin_file,
                       pin->line, name, pin->sharding, line ? pinned_on(p, line) : "its node makes no such sharding");
    return AP_OK;
}

ap_status ap_pins_filter(ap_planning *p, ap_value v, uint32_t n, const ap_sharding *kept, bool *keep, bool *out_pinned,
                         bool *matched)
{
    if (p->opt->npins == 0)
        return AP_OK;
    int *by = AP_NEW_ARRAY(p->arena, int, n), last = 0;
    bool *before = AP_NEW_ARRAY(p->arena, bool, n);
    for (uint32_t i = 0; i < p->opt->npins; i++) {
        const ap_pin *pin = &p->opt->pin[i];
        if (!pin_matches(p, pin, v))
            continue;
        matched[i] = *out_pinned = true;
        memcpy(before, keep, n * sizeof *keep);
        if (pin->forbid)
            AP_TRY(forbid_axis(p, pin, n, kept, keep));
        else
            AP_TRY(pin_sharding(p, pin, v, n, kept, keep, by));
        uint32_t left = 0;
        for (uint32_t l = 0; l < n; l++) {
            left += keep[l];
            by[l] = before[l] && !keep[l] ? pin->line : by[l];
        }
        if (left == 0)
            return ap_fail(p->ctx, AP_ERR_USAGE, 0, "%s:%d: no sharding is left for \"%s\"%s%s", p->opt->pin_file,
                           pin->line, ap_planning_name(p, v), last ? ": " : "", last ? pinned_on(p, last) : "");
        last = pin->line;
    }
    return AP_OK;
}
