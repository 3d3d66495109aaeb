/* Character-level reading for the text forms: see lex.h. Nothing here knows the IR. */
#include "ir/lex.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_word_char(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

static bool is_name_char(int c)
{
    return is_word_char(c) || c == '.' || c == '/' || c == '$';
}

bool ap_name_is_bare(const char *s)
{
    size_t n = 0, digits = 0;
    for (; s[n]; n++) {
        if (!is_name_char((unsigned char)s[n]))
            return false;
        digits += is_digit(s[n]);
    }
    return n > 0 && digits < n && s[n - 1] != '.';
}

bool ap_name_is_word(const char *s)
{
    if (!is_word_char((unsigned char)s[0]) || is_digit(s[0]))
        return false;
    while (is_word_char((unsigned char)*s))
        s++;
    return *s == 0;
}

void ap_lex_init(ap_lex *l, ap_ctx *ctx, const char *name, const char *text, size_t size)
{
    *l = (ap_lex){.ctx = ctx, .name = name, .text = text, .size = size};
}

ap_status ap_lex_error(ap_lex *l, const char *fmt, ...)
{
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    size_t line = 1, column = 1;
    for (size_t i = 0; i < l->mark && i < l->size; i++) {
        column++;
        if (l->text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    if (!l->name)
        return ap_error(l->ctx, 0, "\"%.*s\", column %zu: %s", (int)(l->size < 200 ? l->size : 200), l->text, column,
                        message);
    return ap_error(l->ctx, 0, "%s:%zu:%zu: %s", l->name, line, column, message);
}

void ap_lex_skip(ap_lex *l)
{
    for (; l->pos < l->size; l->pos++) {
        char c = l->text[l->pos];
        if (c == ';') {
            while (l->pos + 1 < l->size && l->text[l->pos + 1] != '\n')
                l->pos++;
        } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            break;
        }
    }
    l->mark = l->pos;
}

bool ap_lex_at_end(ap_lex *l)
{
    ap_lex_skip(l);
    return l->pos == l->size;
}

/* The character `ahead` of the cursor, without skipping anything. */
static int char_at(const ap_lex *l, size_t ahead)
{
    return ahead < l->size - l->pos ? (unsigned char)l->text[l->pos + ahead] : -1;
}

int ap_lex_peek(ap_lex *l)
{
    ap_lex_skip(l);
    return char_at(l, 0);
}

/* What stands at the cursor, for "expected X, found Y". */
static const char *found(const ap_lex *l, char out[24])
{
    int c = char_at(l, 0);
    size_t n = 0;
    if (c < 0)
        return "the end";
    if (!is_word_char(c)) {
        if (c >= 32 && c < 127)
            snprintf(out, 24, "'%c'", c);
        else
            snprintf(out, 24, "byte 0x%02x", (unsigned)c);
        return out;
    }
    while (n < 16 && is_word_char(char_at(l, n)))
        n++;
    snprintf(out, 24, "'%.*s'", (int)n, l->text + l->pos);
    return out;
}

bool ap_lex_accept(ap_lex *l, const char *s)
{
    size_t n = strlen(s);
    ap_lex_skip(l);
    if (n > l->size - l->pos || memcmp(l->text + l->pos, s, n) != 0)
        return false;
    l->pos += n;
    return true;
}

ap_status ap_lex_expect(ap_lex *l, const char *s)
{
    char buf[24];
    if (ap_lex_accept(l, s))
        return AP_OK;
    return ap_lex_error(l, "expected '%s', found %s", s, found(l, buf));
}

bool ap_lex_peek_word(ap_lex *l, const char **out, size_t *out_n)
{
    size_t n = 0;
    ap_lex_skip(l);
    if (is_digit(char_at(l, 0)))
        return false;
    while (is_word_char(char_at(l, n)))
        n++;
    *out = l->text + l->pos;
    *out_n = n;
    return n > 0;
}

bool ap_lex_accept_word(ap_lex *l, const char *word)
{
    const char *s;
    size_t n;
    if (!ap_lex_peek_word(l, &s, &n) || n != strlen(word) || memcmp(s, word, n) != 0)
        return false;
    l->pos += n;
    return true;
}

ap_status ap_lex_expect_word(ap_lex *l, const char *word)
{
    return ap_lex_accept_word(l, word) ? AP_OK : ap_lex_expect(l, word);
}

ap_status ap_lex_word(ap_lex *l, const char *what, const char **out)
{
    const char *s;
    size_t n;
    char buf[24];
    if (!ap_lex_peek_word(l, &s, &n))
        return ap_lex_error(l, "expected %s, found %s", what, found(l, buf));
    *out = ap_arena_strndup(&l->ctx->arena, s, n);
    l->pos += n;
    return AP_OK;
}

ap_status ap_lex_name(ap_lex *l, const char *what, ap_name *out, bool *out_digits)
{
    char buf[24];
    size_t n = 0, digits = 0;
    if (out_digits)
        *out_digits = false;
    if (ap_lex_peek(l) == '"') {
        size_t mark = l->mark;
        AP_TRY(ap_lex_quoted_name(l, what, out));
        l->mark = mark;
        return *out ? AP_OK : ap_lex_error(l, "%s is empty", what);
    }
    while (is_name_char(char_at(l, n)))
        digits += is_digit(char_at(l, n++));
    while (n > 0 && l->text[l->pos + n - 1] == '.')
        n--;
    if (n == 0)
        return ap_lex_error(l, "expected %s, found %s", what, found(l, buf));
    if (digits == n && !out_digits)
        return ap_lex_error(l, "%s of digits only must be quoted", what);
    if (out_digits)
        *out_digits = digits == n;
    *out = ap_name_make_n(l->ctx, l->text + l->pos, n);
    l->pos += n;
    return AP_OK;
}

ap_status ap_lex_axis(ap_lex *l, ap_name *out)
{
    char buf[24];
    const char *s;
    size_t n;
    if (ap_lex_peek(l) == '"')
        return ap_lex_name(l, "an axis name", out, NULL);
    if (!ap_lex_peek_word(l, &s, &n))
        return ap_lex_error(l, "expected an axis name, found %s", found(l, buf));
    *out = ap_name_make_n(l->ctx, s, n);
    l->pos += n;
    return AP_OK;
}

static int hex_digit(int c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One character of a quoted text after the backslash; -1 if there is no such escape. */
static int read_escape(ap_lex *l)
{
    int c = char_at(l, 0), hi, lo;
    l->pos++;
    switch (c) {
    case '"':
    case '\\':
        return c;
    case 'n':
        return '\n';
    case 't':
        return '\t';
    case 'x':
        if (l->pos >= l->size)
            return -1;
        hi = hex_digit(char_at(l, 0));
        lo = hex_digit(char_at(l, 1));
        if (hi < 0 || lo < 0)
            return -1;
        l->pos += 2;
        return hi * 16 + lo;
    default:
        return -1;
    }
}

ap_status ap_lex_quoted(ap_lex *l, const char *what, const char **out, size_t *out_n)
{
    char buf[24];
    size_t n = 0, end, start;
    if (ap_lex_peek(l) != '"')
        return ap_lex_error(l, "expected %s in quotes, found %s", what, found(l, buf));
    start = ++l->pos;
    for (end = start; end < l->size && l->text[end] != '"' && l->text[end] != '\n'; end++)
        end += l->text[end] == '\\';
    if (end >= l->size || l->text[end] != '"')
        return ap_lex_error(l, "the quote is not closed on its line");
    char *s = ap_arena_alloc(&l->ctx->arena, end - start + 1);
    while (l->pos < end) {
        l->mark = l->pos;
        int c = (unsigned char)l->text[l->pos++];
        if (c == '\\' && (c = read_escape(l)) < 0)
            return ap_lex_error(l, "unknown escape; there are \\\" \\\\ \\n \\t \\xHH");
        if (c == 0)
            return ap_lex_error(l, "a quoted text must not contain a NUL byte");
        s[n++] = (char)c;
    }
    l->pos = end + 1;
    *out = s;
    *out_n = n;
    return AP_OK;
}

ap_status ap_lex_quoted_name(ap_lex *l, const char *what, ap_name *out)
{
    const char *s;
    size_t n;
    AP_TRY(ap_lex_quoted(l, what, &s, &n));
    *out = ap_name_make_n(l->ctx, s, n);
    return AP_OK;
}

ap_status ap_lex_u64(ap_lex *l, const char *what, uint64_t *out)
{
    char buf[24];
    uint64_t v = 0;
    size_t n = 0;
    ap_lex_skip(l);
    for (; is_digit(char_at(l, n)); n++) {
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(char_at(l, n) - '0'), &v))
            return ap_lex_error(l, "%s is too large", what);
    }
    if (n == 0)
        return ap_lex_error(l, "expected %s, found %s", what, found(l, buf));
    l->pos += n;
    *out = v;
    return AP_OK;
}

ap_status ap_lex_i64(ap_lex *l, const char *what, int64_t *out)
{
    uint64_t v;
    bool negative = ap_lex_accept(l, "-");
    size_t mark = l->mark;
    AP_TRY(ap_lex_u64(l, what, &v));
    if (v > (uint64_t)INT64_MAX + negative) {
        l->mark = mark;
        return ap_lex_error(l, "%s is too large", what);
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return AP_OK;
}

ap_status ap_lex_range(ap_lex *l, const char *what, int64_t lo, int64_t hi, int64_t *out)
{
    int64_t v;
    ap_lex_skip(l);
    size_t mark = l->mark;
    AP_TRY(ap_lex_i64(l, what, &v));
    l->mark = mark;
    if (v < lo || v > hi)
        return ap_lex_error(l, "%s is %" PRId64 ", not between %" PRId64 " and %" PRId64, what, v, lo, hi);
    *out = v;
    return AP_OK;
}

ap_status ap_lex_num(ap_lex *l, ap_lex_number *out)
{
    char token[72], buf[24];
    size_t n = 0;
    ap_lex_skip(l);
    for (;; n++) {
        int c = char_at(l, n), before = n ? char_at(l, n - 1) | 32 : 0;
        bool sign = (c == '-' || c == '+') && (n == 0 || before == 'p' || before == 'e');
        if (!is_word_char(c) && c != '.' && !sign)
            break;
        if (n + 1 >= sizeof token)
            return ap_lex_error(l, "the number is too long");
        token[n] = (char)c;
    }
    token[n] = 0;
    if (n == 0)
        return ap_lex_error(l, "expected a number, found %s", found(l, buf));
    *out = (ap_lex_number){.negative = token[0] == '-'};
    size_t sign = token[0] == '-' || token[0] == '+';
    bool named = strcmp(token + sign, "inf") == 0 || strcmp(token + sign, "nan") == 0;
    char *end;
    out->f = strtod(token, &end);
    if (*end || (!named && !is_digit(token[sign]) && token[sign] != '.') || (!named && !isfinite(out->f)))
        return ap_lex_error(l, "'%s' is no number", token);
    out->integer = n > sign && strspn(token + sign, "0123456789") == n - sign;
    if (out->integer) {
        errno = 0;
        out->magnitude = strtoull(token + sign, NULL, 10);
        out->integer = errno == 0;
    }
    l->pos += n;
    return AP_OK;
}

ap_status ap_lex_hex(ap_lex *l, const uint8_t **out, size_t *out_n)
{
    size_t n = 0;
    AP_TRY(ap_lex_expect(l, "\""));
    while (hex_digit(char_at(l, n)) >= 0)
        n++;
    if (char_at(l, n) != '"' || n % 2)
        return ap_lex_error(l, "expected an even number of hexadecimal digits in quotes");
    uint8_t *bytes = ap_arena_alloc(&l->ctx->arena, n / 2);
    for (size_t i = 0; i < n; i += 2)
        bytes[i / 2] = (uint8_t)(hex_digit(char_at(l, i)) * 16 + hex_digit(char_at(l, i + 1)));
    l->pos += n + 1;
    *out = bytes;
    *out_n = n / 2;
    return AP_OK;
}

ap_status ap_lex_loc(ap_lex *l, ap_loc *out)
{
    ap_name node, op = 0;
    if (!ap_lex_accept_word(l, "loc"))
        return AP_OK;
    AP_TRY(ap_lex_expect(l, "("));
    AP_TRY(ap_lex_quoted_name(l, "a node name", &node));
    if (ap_lex_accept(l, ","))
        AP_TRY(ap_lex_quoted_name(l, "an operator type", &op));
    AP_TRY(ap_lex_expect(l, ")"));
    ap_name file = l->name ? ap_name_make(l->ctx, l->name) : 0;
    *out = ap_loc_make(l->ctx, file, node, op);
    return AP_OK;
}
