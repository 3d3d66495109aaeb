/* SPDX-License-Identifier: MIT
 *
 * NumPy's .npy format: a magic text, a version, a Python dictionary with the keys descr, fortran_order and shape, the
 * elements. Only that dictionary is understood, in any order of its keys. */
#include "internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    int32_t dtype;
    const char *descr;
} descrs[] = {{APRT_F32, "<f4"},  {APRT_U8, "|u1"},  {APRT_I8, "|i1"},  {APRT_U16, "<u2"}, {APRT_I16, "<i2"},
              {APRT_I32, "<i4"},  {APRT_I64, "<i8"}, {APRT_F16, "<f2"}, {APRT_F64, "<f8"}, {APRT_U32, "<u4"},
              {APRT_BOOL, "|b1"}, {APRT_U64, "<u8"}, {APRT_BF16, "|V2"}};

/* A reader that never goes beyond `end`. */
typedef struct reader {
    const char *at, *end;
} reader;

static void skip_space(reader *r)
{
    while (r->at < r->end && isspace((unsigned char)*r->at))
        r->at++;
}

static bool eat(reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool eat_word(reader *r, const char *word)
{
    size_t n = strlen(word);
    skip_space(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static bool read_string(reader *r, char *out, size_t size)
{
    skip_space(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"'))
        return false;
    char quote = *r->at++;
    size_t n = 0;
    while (r->at < r->end && *r->at != quote && n + 1 < size)
        out[n++] = *r->at++;
    out[n] = 0;
    return eat(r, quote);
}

static bool read_number(reader *r, int64_t *out)
{
    skip_space(r);
    if (r->at == r->end || !isdigit((unsigned char)*r->at))
        return false;
    int64_t v = 0;
    while (r->at < r->end && isdigit((unsigned char)*r->at))
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *r->at++ - '0', &v))
            return false;
    eat_word(r, "L"); /* Python 2 */
    *out = v;
    return true;
}

static bool read_shape(reader *r, int32_t *rank, int64_t *dim)
{
    *rank = 0;
    if (!eat(r, '('))
        return false;
    while (!eat(r, ')')) {
        if (*rank == APRT_MAX_RANK || !read_number(r, &dim[*rank]))
            return false;
        ++*rank;
        if (!eat(r, ','))
            return eat(r, ')');
    }
    return true;
}

typedef struct header {
    char descr[16];
    bool fortran;
    int32_t rank;
    int64_t dim[APRT_MAX_RANK];
    int seen; /* bits: descr, fortran_order, shape */
} header;

static bool read_header(reader *r, header *h)
{
    char key[24];
    memset(h, 0, sizeof *h);
    if (!eat(r, '{'))
        return false;
    while (!eat(r, '}')) {
        if (!read_string(r, key, sizeof key) || !eat(r, ':'))
            return false;
        if (strcmp(key, "descr") == 0) {
            if (!read_string(r, h->descr, sizeof h->descr))
                return false;
            h->seen |= 1;
        } else if (strcmp(key, "fortran_order") == 0) {
            h->fortran = eat_word(r, "True");
            if (!h->fortran && !eat_word(r, "False"))
                return false;
            h->seen |= 2;
        } else if (strcmp(key, "shape") == 0) {
            if (!read_shape(r, &h->rank, h->dim))
                return false;
            h->seen |= 4;
        } else
            return false;
        if (!eat(r, ','))
            return eat(r, '}') && h->seen == 7;
    }
    return h->seen == 7;
}

static int32_t dtype_of(const char *descr)
{
    for (size_t i = 0; i < sizeof descrs / sizeof *descrs; i++) {
        const char *d = descrs[i].descr;
        /* one byte has no order: <i1, =i1 and |i1 are the same */
        bool byte = d[1] != 'V' && d[2] == '1';
        if (strcmp(d, descr) == 0 || (strcmp(d + 1, descr + (*descr != 0)) == 0 && (byte || *descr == '=')))
            return descrs[i].dtype;
    }
    return 0;
}

/* Column-major to row-major. */
static void copy_fortran(const aprt_tensor *t, const uint8_t *from)
{
    int64_t column[APRT_MAX_RANK], row[APRT_MAX_RANK], stride = 1;
    for (int32_t d = 0; d < t->rank; d++) {
        column[d] = stride;
        stride *= t->dim[d];
    }
    stride = 1;
    for (int32_t d = t->rank; d-- > 0;) {
        row[d] = stride;
        stride *= t->dim[d];
    }
    aprt_box box;
    aprt_box_make(&box, t->rank, t->dim, column, row);
    aprt_box_copy(&box, 0, aprt_box_count(&box), aprt_dtype_bytes(t->dtype), from, t->data);
}

int aprt_npy_parse(const uint8_t *bytes, size_t size, aprt_tensor *out, aprt_failure *why)
{
    header h;
    size_t start = size >= 10 && bytes[6] == 1 ? 10 : 12, length = 0;
    if (size < start || bytes[6] < 1 || bytes[6] > 3)
        return aprt_fail(why, APRT_ERR_DATA, "a .npy file that is cut short or of an unknown version");
    for (size_t i = start; i-- > 8;)
        length = length << 8 | bytes[i];
    if (length > size - start)
        return aprt_fail(why, APRT_ERR_DATA, "a .npy file that is cut short");
    reader r = {(const char *)bytes + start, (const char *)bytes + start + length};
    if (!read_header(&r, &h))
        return aprt_fail(why, APRT_ERR_DATA,
                         "a .npy header that is no dictionary of descr, fortran_order and shape (of at most %d "
                         "dimensions)",
                         APRT_MAX_RANK);
    int32_t dtype = dtype_of(h.descr);
    if (!dtype)
        return aprt_fail(why, APRT_ERR_DATA, "elements of NumPy type '%s' are not supported", h.descr);
    int64_t wanted;
    size_t there = size - start - length;
    if (!aprt_tensor_bytes(dtype, h.rank, h.dim, &wanted) || (uint64_t)wanted != there)
        return aprt_fail(why, APRT_ERR_DATA, "%zu bytes of elements do not fit the shape of the .npy header", there);
    int status = aprt_tensor_make(dtype, h.rank, h.dim, out, why);
    if (status != APRT_OK)
        return status;
    if (h.fortran && h.rank > 1)
        copy_fortran(out, bytes + start + length);
    else
        memcpy(out->data, bytes + start + length, there);
    return APRT_OK;
}

int aprt_npy_write(const char *path, const aprt_port *port, const void *data, aprt_failure *why)
{
    char head[512] = "\x93NUMPY\x01";
    const char *descr = NULL;
    int64_t bytes;
    for (size_t i = 0; i < sizeof descrs / sizeof *descrs; i++)
        if (descrs[i].dtype == port->dtype)
            descr = descrs[i].descr;
    if (!descr || !aprt_tensor_bytes(port->dtype, port->rank, port->dim, &bytes))
        return aprt_fail(why, APRT_ERR_BUG, "%s: a tensor of impossible type or shape", path);
    size_t n =
        10 + (size_t)snprintf(head + 10, sizeof head - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int32_t d = 0; d < port->rank; d++)
        n += (size_t)snprintf(head + n, sizeof head - n, d ? ", %lld" : "%lld", (long long)port->dim[d]);
    n += (size_t)snprintf(head + n, sizeof head - n, port->rank == 1 ? ",), }" : "), }");
    while (n % 64 != 63)
        head[n++] = ' ';
    head[n++] = '\n';
    head[8] = (char)((n - 10) & 255);
    head[9] = (char)((n - 10) >> 8);
    return aprt_file_write(path, head, n, data, (size_t)bytes, why);
}
