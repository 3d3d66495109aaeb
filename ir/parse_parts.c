/* Reading element types, shapes, shardings, types and meshes. */
#include "ir/parse.h"

#include "ir/print.h"

#include <inttypes.h>
#include <string.h>

ap_status ap_parse_choice(ap_lex *l, const char *what, const char *const *words, int count, int *out)
{
    char list[160] = "";
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        if (ap_lex_accept_word(l, words[i])) {
            *out = i;
            return AP_OK;
        }
        int k = snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", words[i]);
        n = k > 0 && (size_t)k < sizeof list - n ? n + (size_t)k : n;
    }
    return ap_lex_error(l, "expected %s: one of %s", what, list);
}

ap_status ap_parse_dtype(ap_lex *l, ap_dtype *out)
{
    const char *word;
    AP_TRY(ap_lex_word(l, "an element type", &word));
    if (!ap_dtype_from_str(word, out))
        return ap_lex_error(l, "'%s' is no element type", word);
    return AP_OK;
}

/* ---- shapes ---- */

static ap_status parse_factor(ap_lex *l, ap_shape_info *s)
{
    int64_t logical, physical;
    AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, &logical));
    physical = logical;
    if (ap_lex_accept(l, "^")) {
        AP_TRY(ap_lex_range(l, "a padded extent", 0, INT64_MAX, &physical));
        if (physical <= logical)
            return ap_lex_error(l, "the padded extent must be larger than the logical one");
    }
    if (s->nfactors == AP_MAX_FACTORS)
        return ap_lex_error(l, "more than %d factors", AP_MAX_FACTORS);
    s->logical[s->nfactors] = logical;
    s->physical[s->nfactors++] = physical;
    return AP_OK;
}

static ap_status parse_dim(ap_lex *l, ap_shape_info *s)
{
    ap_lex_skip(l);
    size_t mark = l->mark;
    int first = s->nfactors, count;
    do {
        if (s->nfactors - first == AP_MAX_DIM_FACTORS)
            return ap_lex_error(l, "more than %d factors in one dimension", AP_MAX_DIM_FACTORS);
        AP_TRY(parse_factor(l, s));
    } while (ap_lex_accept(l, "."));
    count = s->nfactors - first;
    if (count == 1 && s->physical[first] == 1) {
        s->nfactors--; /* extent 1 has no factor */
        return AP_OK;
    }
    l->mark = mark;
    for (int f = first; f < s->nfactors; f++)
        if (s->logical[f] == 1)
            return ap_lex_error(l, "a factor of extent 1 cannot be cut or padded");
    return AP_OK;
}

ap_status ap_parse_shape(ap_lex *l, ap_shape_info *out)
{
    memset(out, 0, sizeof *out);
    AP_TRY(ap_lex_expect(l, "["));
    size_t mark = l->mark;
    if (!ap_lex_accept(l, "]")) {
        do {
            if (out->rank == AP_MAX_RANK)
                return ap_lex_error(l, "more than %d dimensions", AP_MAX_RANK);
            AP_TRY(parse_dim(l, out));
            out->first[++out->rank] = out->nfactors;
        } while (ap_lex_accept(l, ","));
        AP_TRY(ap_lex_expect(l, "]"));
    }
    l->mark = mark;
    return ap_shape_fits(out) ? AP_OK : ap_lex_error(l, "the shape has too many elements");
}

/* ---- shardings ---- */

static ap_status parse_axis(ap_lex *l, const ap_mesh_info *mesh, int *out)
{
    ap_name name;
    AP_TRY(ap_lex_axis(l, &name));
    for (*out = 0; *out < mesh->naxes; (*out)++)
        if (mesh->axis_name[*out] == name)
            return AP_OK;
    return ap_lex_error(l, "mesh @%s has no axis '%s'", ap_name_str(l->ctx, mesh->name), ap_name_str(l->ctx, name));
}

/* An axis that must not have been used before. */
static ap_status parse_fresh_axis(ap_lex *l, const ap_mesh_info *mesh, uint8_t *used, int *out)
{
    AP_TRY(parse_axis(l, mesh, out));
    if (*used >> *out & 1)
        return ap_lex_error(l, "axis '%s' occurs twice", ap_name_str(l->ctx, mesh->axis_name[*out]));
    *used |= (uint8_t)(1u << *out);
    return AP_OK;
}

ap_status ap_parse_axes_mask(ap_lex *l, const ap_mesh_info *mesh, uint8_t *out)
{
    *out = 0;
    do {
        int axis;
        AP_TRY(parse_fresh_axis(l, mesh, out, &axis));
    } while (ap_lex_accept(l, ","));
    return AP_OK;
}

/* `-` or `dp*tp` */
static ap_status parse_axes(ap_lex *l, const ap_mesh_info *mesh, uint8_t *used, ap_axes *out)
{
    *out = 0;
    if (ap_lex_accept(l, "-"))
        return AP_OK;
    do {
        int axis;
        AP_TRY(parse_fresh_axis(l, mesh, used, &axis));
        *out = ap_axes_append(*out, axis);
    } while (ap_lex_accept(l, "*"));
    return AP_OK;
}

static ap_status parse_sharded_dim(ap_lex *l, const ap_mesh_info *mesh, const ap_shape_info *shape, int d, bool lenient,
                                   uint8_t *used, ap_sharding_info *out)
{
    int count = shape->first[d + 1] - shape->first[d], given = 0;
    ap_axes axes = 0;
    ap_lex_skip(l);
    size_t mark = l->mark;
    do {
        AP_TRY(parse_axes(l, mesh, used, &axes));
        if (given < count)
            out->axes[shape->first[d] + given] = axes;
        given++;
    } while (ap_lex_accept(l, "."));
    bool covers = given == count || (given == 1 && (!axes || (lenient && count > 0)));
    l->mark = mark;
    if (!covers)
        return ap_lex_error(l, "dimension %d has %d factor%s, its sharding %d", d, count, count == 1 ? "" : "s", given);
    return AP_OK;
}

static ap_status parse_partials(ap_lex *l, const ap_mesh_info *mesh, uint8_t *used, ap_sharding_info *out)
{
    for (int k = 0; k < AP_PARTIAL_COUNT; k++) {
        ap_lex ahead = *l;
        if (!ap_lex_accept_word(&ahead, ap_partial_text[k]) || !ap_lex_accept(&ahead, "("))
            continue;
        *l = ahead;
        do {
            int axis;
            AP_TRY(parse_fresh_axis(l, mesh, used, &axis));
            out->partial[k] |= (uint8_t)(1u << axis);
        } while (ap_lex_accept(l, ","));
        AP_TRY(ap_lex_expect(l, ")"));
    }
    return AP_OK;
}

static ap_status parse_mesh_ref(ap_lex *l, const ap_module *m, bool lenient, ap_mesh *out)
{
    ap_name name;
    *out = 0;
    if (lenient && ap_lex_peek(l) == '[')
        return m->meshes.len ? AP_OK : ap_lex_error(l, "the module has no mesh");
    AP_TRY(ap_lex_name(l, "a mesh name", &name, NULL));
    for (; *out < m->meshes.len; (*out)++)
        if (m->meshes.at[*out].name == name)
            return AP_OK;
    return ap_lex_error(l, "mesh @%s is not defined", ap_name_str(l->ctx, name));
}

ap_status ap_parse_sharding(ap_lex *l, const ap_module *m, const ap_shape_info *shape, bool lenient,
                            ap_sharding_info *out)
{
    ap_mesh id;
    uint8_t used = 0;
    *out = (ap_sharding_info){.nfactors = shape->nfactors};
    AP_TRY(parse_mesh_ref(l, m, lenient, &id));
    const ap_mesh_info *mesh = &m->meshes.at[id];
    out->mesh = id;
    AP_TRY(ap_lex_expect(l, "["));
    size_t mark = l->mark;
    int d = 0;
    if (!ap_lex_accept(l, "]")) {
        do {
            if (d >= shape->rank)
                return ap_lex_error(l, "the shape has %d dimension%s", shape->rank, shape->rank == 1 ? "" : "s");
            AP_TRY(parse_sharded_dim(l, mesh, shape, d++, lenient, &used, out));
        } while (ap_lex_accept(l, ","));
        AP_TRY(ap_lex_expect(l, "]"));
    }
    if (d != shape->rank) {
        l->mark = mark;
        return ap_lex_error(l, "the shape has %d dimension%s, its sharding %d", shape->rank,
                            shape->rank == 1 ? "" : "s", d);
    }
    return parse_partials(l, mesh, &used, out);
}

ap_status ap_parse_type(ap_lex *l, const ap_module *m, ap_type *out)
{
    ap_dtype dtype;
    ap_shape_info shape;
    ap_sharding sharding = 0;
    AP_TRY(ap_parse_dtype(l, &dtype));
    AP_TRY(ap_parse_shape(l, &shape));
    if (ap_lex_accept(l, "@")) {
        ap_sharding_info info;
        AP_TRY(ap_parse_sharding(l, m, &shape, false, &info));
        sharding = ap_sharding_intern(l->ctx, &info);
    }
    *out = ap_type_make(l->ctx, dtype, ap_shape_intern(l->ctx, &shape), sharding);
    return AP_OK;
}

/* ---- meshes ---- */

static ap_status parse_mesh_axis(ap_lex *l, ap_mesh_info *out, int64_t *size)
{
    ap_name name;
    int64_t n;
    if (out->naxes == AP_MAX_AXES)
        return ap_lex_error(l, "more than %d axes", AP_MAX_AXES);
    AP_TRY(ap_lex_axis(l, &name));
    for (int a = 0; a < out->naxes; a++)
        if (out->axis_name[a] == name)
            return ap_lex_error(l, "axis '%s' occurs twice", ap_name_str(l->ctx, name));
    AP_TRY(ap_lex_expect(l, "="));
    AP_TRY(ap_lex_range(l, "an axis size", 1, AP_PARSE_MAX_RANKS, &n));
    if (*size * n > AP_PARSE_MAX_RANKS)
        return ap_lex_error(l, "a mesh of more than %d ranks%s", AP_PARSE_MAX_RANKS,
                            out->ntime ? " times microbatches" : "");
    *size *= n;
    out->axis_name[out->naxes] = name;
    out->axis_size[out->naxes++] = (int32_t)n;
    return AP_OK;
}

ap_status ap_parse_time(ap_lex *l, int32_t *out)
{
    int64_t n;
    AP_TRY(ap_lex_expect_word(l, AP_TIME_AXIS));
    AP_TRY(ap_lex_expect(l, "="));
    AP_TRY(ap_lex_range(l, "a number of microbatches", 1, AP_PARSE_MAX_RANKS, &n));
    *out = (int32_t)n;
    return AP_OK;
}

ap_status ap_parse_mesh(ap_lex *l, int32_t microbatches, ap_mesh_info *out)
{
    int64_t size = 1, first, last;
    *out = (ap_mesh_info){0};
    if (microbatches) {
        size = microbatches;
        out->ntime = 1;
        out->axis_name[out->naxes] = ap_name_make(l->ctx, AP_TIME_AXIS);
        out->axis_size[out->naxes++] = microbatches;
    }
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "a mesh name", &out->name, NULL));
    AP_TRY(ap_lex_expect(l, "="));
    AP_TRY(ap_lex_expect(l, "["));
    if (!ap_lex_accept(l, "]")) {
        do
            AP_TRY(parse_mesh_axis(l, out, &size));
        while (ap_lex_accept(l, ","));
        AP_TRY(ap_lex_expect(l, "]"));
    }
    AP_TRY(ap_lex_expect_word(l, "ranks"));
    AP_TRY(ap_lex_range(l, "a rank", 0, INT32_MAX - AP_PARSE_MAX_RANKS, &first));
    AP_TRY(ap_lex_expect(l, ".."));
    AP_TRY(ap_lex_range(l, "a rank", 0, INT32_MAX, &last));
    size = ap_mesh_ranks(out);
    if (last != first + size - 1)
        return ap_lex_error(l, "the axes make %" PRId64 " ranks, %" PRId64 "..%" PRId64 " are %" PRId64, size, first,
                            last, last - first + 1);
    out->first_rank = (int32_t)first;
    return AP_OK;
}
