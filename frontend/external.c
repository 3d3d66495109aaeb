/* A model can come from anywhere, so its `location` is not trusted: it must be a relative path without
 * `..`, and what it leads to, links followed, must be a regular file within the model's folder. Hard links
 * cannot be told from files and are accepted (docs/frontend.md). */
#include "frontend/external.h"

#include "ir/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct reference {
    const char *location, *offset, *length;
} reference;

static reference read_reference(const Onnx__TensorProto *proto)
{
    reference r = {0};
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const Onnx__StringStringEntryProto *e = proto->external_data[i];
        if (!e->key || !e->value)
            continue;
        if (strcmp(e->key, "location") == 0)
            r.location = e->value;
        else if (strcmp(e->key, "offset") == 0)
            r.offset = e->value;
        else if (strcmp(e->key, "length") == 0)
            r.length = e->value;
    }
    return r;
}

static bool parse_u64(const char *s, uint64_t *out)
{
    if (*s < '0' || *s > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long x = strtoull(s, &end, 10);
    if (*end || errno || x > INT64_MAX)
        return false;
    *out = x;
    return true;
}

/* Why a location is refused, or NULL. */
static const char *bad_location(const char *s)
{
    if (!s || !*s)
        return "has no location";
    if (*s == '/')
        return "has an absolute path";
    for (const char *p = s; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return "leaves the model's folder by `..`";
        p += n + (p[n] == '/');
    }
    return NULL;
}

/* Follows links: is `path` still within `folder`? */
static bool is_within(const char *folder, const char *path)
{
    char *f = realpath(folder, NULL), *p = realpath(path, NULL);
    size_t n = f ? strlen(f) : 0;
    if (n == 1) /* the root holds everything */
        n = 0;
    bool within = f && p && strncmp(f, p, n) == 0 && p[n] == '/';
    free(f);
    free(p);
    return within;
}

static ap_status check_file(const ap_onnx_source *src, const char *who, const char *location, ap_loc loc,
                            const ap_data *d, bool has_length)
{
    ap_ctx *ctx = src->ctx;
    const char *folder = ap_name_str(ctx, src->folder);
    ap_text path;
    ap_text_init(&path, &ctx->scratch);
    ap_text_addf(&path, "%s/%s", folder, location);
    struct stat st;
    if (stat(ap_text_str(&path), &st) != 0) {
        if (src->weights_absent && (errno == ENOENT || errno == ENOTDIR))
            return AP_OK;
        return ap_error(ctx, loc, "%s: its external data file \"%s\" cannot be read: %s", who, location,
                        strerror(errno));
    }
    if (!is_within(folder, ap_text_str(&path)))
        return ap_error(ctx, loc, "%s: its external data file \"%s\" is a link that leaves the model's folder", who,
                        location);
    if (!S_ISREG(st.st_mode))
        return ap_error(ctx, loc, "%s: its external data \"%s\" is not a regular file", who, location);
    uint64_t have = (uint64_t)st.st_size;
    if (d->offset > have || d->size > have - d->offset)
        return ap_error(ctx, loc,
                        "%s: %" PRIu64 " bytes at offset %" PRIu64 " of \"%s\" are wanted%s, the file has %" PRIu64,
                        who, d->size, d->offset, location, has_length ? "" : " by its dimensions", have);
    return AP_OK;
}

ap_status ap_onnx_external_find(const ap_onnx_source *src, const Onnx__TensorProto *proto, const char *what, ap_loc loc,
                                uint64_t want, ap_data *out)
{
    ap_ctx *ctx = src->ctx;
    ap_text text;
    ap_text_init(&text, &ctx->scratch);
    ap_text_addf(&text, "%s \"%s\"", what, proto->name ? proto->name : "");
    const char *who = ap_text_str(&text);

    reference r = read_reference(proto);
    const char *why = bad_location(r.location);
    if (why)
        return ap_error(ctx, loc, "%s: its external data %s: \"%s\"", who, why, r.location ? r.location : "");
    uint64_t offset = 0, length = want;
    if ((r.offset && !parse_u64(r.offset, &offset)) || (r.length && !parse_u64(r.length, &length)))
        return ap_error(ctx, loc, "%s: offset \"%s\" or length \"%s\" of its external data is not a size", who,
                        r.offset ? r.offset : "", r.length ? r.length : "");
    if (length != want)
        return ap_error(ctx, loc, "%s: its dimensions ask for %" PRIu64 " bytes, its external data has %" PRIu64, who,
                        want, length);
    out->kind = AP_DATA_FILE;
    out->file = ap_name_make(ctx, r.location);
    out->offset = offset;
    out->size = want;
    return check_file(src, who, r.location, loc, out, r.length != NULL);
}
