/* See the header. Plain text is scanned where it lies; of compressed text a window at a time exists, so that a file of
 * any size costs no more memory than the numbers in it. */
#include "passes/solve/problem_scan.h"

#include <string.h>

enum { WINDOW = 1 << 17, DEPTH = 64 };

/* ---- bytes ---- */

static ap_status fail_text(ap_scan *s, const char *text)
{
    if (s->failed == AP_OK)
        s->failed = ap_fail(s->ctx, AP_ERR_MODEL, 0, "%s: %s", s->path, text);
    return s->failed;
}

/* One more window. False at the end of the data or when they are damaged; s->failed tells. */
static bool unpack(ap_scan *s)
{
    while (!s->over) {
        s->z.next_out = s->window;
        s->z.avail_out = WINDOW;
        int r = inflate(&s->z, Z_NO_FLUSH);
        uint32_t n = WINDOW - s->z.avail_out;
        if (r == Z_STREAM_END) {
            s->over = s->z.avail_in == 0;
            if (!s->over && inflateReset(&s->z) != Z_OK) /* gzip files may follow one another */
                r = Z_DATA_ERROR;
        }
        if (r != Z_OK && r != Z_STREAM_END) {
            s->over = true;
            fail_text(s, r == Z_BUF_ERROR ? "the compressed data end early" : "the compressed data are damaged");
        }
        if (n > 0) {
            s->start = s->at = s->window;
            s->end = s->window + n;
            return true;
        }
    }
    return false;
}

static bool refill(ap_scan *s)
{
    s->before += (uint64_t)(s->end - s->start);
    s->start = s->end = s->at;
    return s->packed && unpack(s);
}

/* The next byte, or -1. */
static inline int look(ap_scan *s)
{
    return s->at < s->end || refill(s) ? *s->at : -1;
}

/* zlib's memory, so that nothing is left to be freed. */
static void *arena_for_zlib(void *arena, unsigned count, unsigned size)
{
    return ap_arena_calloc(arena, count, size);
}

static void no_free(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

ap_status ap_scan_open(ap_ctx *ctx, ap_arena *arena, const char *path, const uint8_t *data, uint64_t size, ap_scan *out)
{
    *out = (ap_scan){.ctx = ctx, .path = path, .at = data, .start = data, .end = data + size, .line = 1};
    if (size < 2 || data[0] != 0x1f || data[1] != 0x8b)
        return AP_OK;
    if (size > UINT32_MAX)
        return fail_text(out, "compressed files of more than 4 GiB are not read");
    out->window = ap_arena_alloc(arena, WINDOW);
    out->start = out->at = out->end = out->window;
    out->z.next_in = (z_const Bytef *)(uintptr_t)data;
    out->z.avail_in = (uInt)size;
    out->z.zalloc = arena_for_zlib;
    out->z.zfree = no_free;
    out->z.opaque = arena;
    out->packed = inflateInit2(&out->z, 15 + 16) == Z_OK;
    return out->packed ? AP_OK : ap_fail(ctx, AP_ERR_ENV, 0, "%s: zlib is not the one built with", path);
}

/* ---- places and messages ---- */

ap_place ap_scan_place(const ap_scan *s)
{
    uint64_t column = s->before + (uint64_t)(s->at - s->start) - s->line_from + 1;
    return (ap_place){s->line, column > UINT32_MAX ? UINT32_MAX : (uint32_t)column};
}

ap_status ap_scan_fail(ap_scan *s, const char *fmt, ...)
{
    if (s->failed != AP_OK)
        return s->failed; /* the data are damaged: that is what is wrong */
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ap_place at = ap_scan_place(s);
    s->failed = ap_error(s->ctx, 0, "%s:%u:%u: %s", s->path, at.line, at.column, text);
    return s->failed;
}

static ap_status unexpected(ap_scan *s, const char *wanted)
{
    int c = look(s);
    if (c < 0)
        return ap_scan_fail(s, "the file ends where %s should stand", wanted);
    if (c >= ' ' && c < 0x7f)
        return ap_scan_fail(s, "'%c' where %s should stand", c, wanted);
    return ap_scan_fail(s, "byte 0x%02x where %s should stand", (unsigned)c, wanted);
}

/* ---- tokens ---- */

int ap_scan_peek(ap_scan *s)
{
    for (;;) {
        int c = look(s);
        if (c == '\n') {
            s->line += s->line < UINT32_MAX;
            s->line_from = s->before + (uint64_t)(s->at - s->start) + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return c < 0 ? 0 : c;
        }
        s->at++;
    }
}

ap_status ap_scan_expect(ap_scan *s, char c)
{
    char wanted[4] = {'\'', c, '\'', 0};
    if (ap_scan_peek(s) != c)
        return unexpected(s, wanted);
    s->at++;
    return AP_OK;
}

ap_status ap_scan_enter(ap_scan *s, char open, char close, bool *more)
{
    AP_TRY(ap_scan_expect(s, open));
    *more = ap_scan_peek(s) != close;
    if (!*more)
        s->at++;
    return AP_OK;
}

ap_status ap_scan_next(ap_scan *s, char close, bool *more)
{
    int c = ap_scan_peek(s);
    *more = c == ',';
    if (c != ',' && c != close)
        return unexpected(s, close == ']' ? "',' or ']'" : "',' or '}'");
    s->at++;
    return AP_OK;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

ap_status ap_scan_int(ap_scan *s, int64_t *out)
{
    bool minus = ap_scan_peek(s) == '-';
    s->at += minus;
    if (!is_digit(look(s)))
        return unexpected(s, minus ? "a digit" : "a whole number");
    bool zero = *s->at == '0';
    uint64_t n = 0, most = (uint64_t)INT64_MAX + minus;
    uint32_t digits = 0;
    for (int c; is_digit(c = look(s)); s->at++, digits++) {
        uint64_t d = (uint64_t)(c - '0');
        if (n > (most - d) / 10)
            return ap_scan_fail(s, "a number of more than 64 bits");
        n = n * 10 + d;
    }
    if (zero && digits > 1)
        return ap_scan_fail(s, "a number that begins with 0");
    int c = look(s);
    if (c == '.' || c == 'e' || c == 'E')
        return ap_scan_fail(s, "a fraction or exponent: numbers must be whole and written out");
    *out = minus ? (int64_t)(0 - n) : (int64_t)n;
    return AP_OK;
}

static ap_status scan_escape(ap_scan *s, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = look(s);
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (!known && c != 'u')
        return unexpected(s, "an escape of JSON");
    s->at++;
    if (known) {
        *out = to[known - from];
        return AP_OK;
    }
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        c = look(s);
        int lower = c | 0x20;
        if (!is_digit(c) && (lower < 'a' || lower > 'f'))
            return unexpected(s, "a hexadecimal digit");
        code = code * 16 + (uint32_t)(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    *out = code > 0 && code < 0x80 ? (char)code : '?';
    return AP_OK;
}

ap_status ap_scan_string(ap_scan *s, char *out, size_t cap)
{
    size_t n = 0;
    if (ap_scan_peek(s) != '"')
        return unexpected(s, "a string");
    for (s->at++;; n++) {
        int c = look(s);
        if (c < ' ')
            return unexpected(s, "'\"' that ends a string");
        s->at++;
        if (c == '"')
            break;
        char byte = (char)c;
        if (c == '\\')
            AP_TRY(scan_escape(s, &byte));
        if (n + 1 < cap)
            out[n] = byte;
    }
    out[n + 1 < cap ? n : cap - 1] = 0;
    return AP_OK;
}

/* ---- what nobody asks for ---- */

static ap_status skip_word(ap_scan *s, const char *word)
{
    for (; *word; word++, s->at++)
        if (look(s) != *word)
            return unexpected(s, "a value");
    return AP_OK;
}

static ap_status skip_digits(ap_scan *s)
{
    if (!is_digit(look(s)))
        return unexpected(s, "a digit");
    while (is_digit(look(s)))
        s->at++;
    return AP_OK;
}

static ap_status skip_number(ap_scan *s)
{
    s->at += *s->at == '-';
    if (look(s) == '0')
        s->at++;
    else
        AP_TRY(skip_digits(s));
    if (look(s) == '.') {
        s->at++;
        AP_TRY(skip_digits(s));
    }
    if (look(s) != 'e' && look(s) != 'E')
        return AP_OK;
    s->at++;
    if (look(s) == '+' || look(s) == '-')
        s->at++;
    return skip_digits(s);
}

static ap_status skip_value(ap_scan *s, int depth)
{
    char nothing[1];
    int c = ap_scan_peek(s);
    if (c == '"')
        return ap_scan_string(s, nothing, 1);
    if (c == '-' || is_digit(c))
        return skip_number(s);
    if (c != '[' && c != '{')
        return skip_word(s, c == 't' ? "true" : c == 'f' ? "false" : "null");
    if (depth == DEPTH)
        return ap_scan_fail(s, "lists in lists: more than %d", DEPTH);
    char close = c == '[' ? ']' : '}';
    bool more;
    AP_TRY(ap_scan_enter(s, (char)c, close, &more));
    while (more) {
        if (c == '{') {
            AP_TRY(ap_scan_string(s, nothing, 1));
            AP_TRY(ap_scan_expect(s, ':'));
        }
        AP_TRY(skip_value(s, depth + 1));
        AP_TRY(ap_scan_next(s, close, &more));
    }
    return AP_OK;
}

ap_status ap_scan_skip(ap_scan *s)
{
    return skip_value(s, 0);
}

ap_status ap_scan_finish(ap_scan *s)
{
    if (ap_scan_peek(s) == 0 && s->at == s->end)
        return s->failed; /* the checksum of the last window may be wrong */
    return unexpected(s, "the end of the file");
}
