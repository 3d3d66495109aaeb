/* Growing texts in an arena. */
#include "ir/base/text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void ap_text_init(ap_text *t, ap_arena *arena)
{
    *t = (ap_text){.arena = arena};
}

static void reserve(ap_text *t, size_t more)
{
    if (t->len + more + 1 <= t->cap)
        return;
    size_t cap = t->cap ? t->cap * 2 : 256;
    while (cap < t->len + more + 1)
        cap *= 2;
    char *s = ap_arena_alloc(t->arena, cap);
    if (t->len)
        memcpy(s, t->s, t->len);
    t->s = s;
    t->cap = cap;
}

void ap_text_add_n(ap_text *t, const char *s, size_t n)
{
    reserve(t, n);
    if (n)
        memcpy(t->s + t->len, s, n);
    t->len += n;
    t->s[t->len] = 0;
}

void ap_text_add(ap_text *t, const char *s)
{
    ap_text_add_n(t, s, strlen(s));
}

void ap_text_addf(ap_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n > 0) {
        reserve(t, (size_t)n);
        vsnprintf(t->s + t->len, (size_t)n + 1, fmt, again);
        t->len += (size_t)n;
    }
    va_end(again);
}

const char *ap_text_str(const ap_text *t)
{
    return t->s ? t->s : "";
}

void ap_text_add_quoted(ap_text *t, const char *s)
{
    ap_text_add_n(t, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            ap_text_addf(t, "\\%c", c);
        else if (c == '\n')
            ap_text_add(t, "\\n");
        else if (c == '\t')
            ap_text_add(t, "\\t");
        else if (c < 0x20 || c == 0x7f)
            ap_text_addf(t, "\\x%02x", c);
        else
            ap_text_add_n(t, s, 1);
    }
    ap_text_add_n(t, "\"", 1);
}

void ap_text_add_hexfloat(ap_text *t, double x)
{
    if (isnan(x))
        ap_text_add(t, "nan");
    else if (isinf(x))
        ap_text_add(t, x < 0 ? "-inf" : "inf");
    else
        ap_text_addf(t, "%a", x);
}

size_t ap_utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    static const unsigned char least[] = {0, 0, 0, 0xa0, 0x90},
                               lead[] = {0, 0, 0, 0xe0, 0xf0}; /* no longer than needed */
    bool wrong = n > 2 && s[0] == lead[n] && s[1] < least[n];
    wrong |= (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90); /* surrogates, beyond the last one */
    return wrong ? 0 : n;
}
