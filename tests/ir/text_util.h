/* What the tests of both text forms share: reading the golden files, looking at messages, random edits. */
#ifndef AP_TESTS_IR_TEXT_UTIL_H
#define AP_TESTS_IR_TEXT_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/base/ctx.h"
#include "ir/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline char *read_file(const char *stem, size_t *out_size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/ir/%s", AP_TESTS_DIR, stem);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *s = malloc(1 << 16);
    *out_size = fread(s, 1, (1 << 16) - 1, f);
    s[*out_size] = 0;
    assert_true(*out_size > 0 && *out_size < (1 << 16) - 1);
    fclose(f);
    return s;
}

static inline const char *messages(ap_ctx *ctx)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        ap_text_addf(&t, "%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
    return ap_text_str(&t);
}

static inline void expect_message(ap_ctx *ctx, const char *want)
{
    if (!strstr(messages(ctx), want))
        fail_msg("want: %s\nhave: %s", want, messages(ctx));
}

/* For tables of cases, which all run: 1 and a line when the case is wrong. */
static inline int case_fails(ap_ctx *ctx, const char *text, ap_status status, const char *want)
{
    if (status == AP_ERR_MODEL && strstr(messages(ctx), want))
        return 0;
    print_error("case: %s\n  want: %s\n  have (%d): %s\n", text, want, (int)status, messages(ctx));
    return 1;
}

/* ---- random edits ---- */

static inline uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static inline size_t below(uint64_t *s, size_t n)
{
    return n ? (size_t)(next_random(s) % n) : 0;
}

/* Replaces `cut` bytes at `at` by n bytes. */
static inline void splice(char *text, size_t *size, size_t cap, size_t at, size_t cut, const char *with, size_t n)
{
    if (*size - cut + n >= cap)
        return;
    char *copy = malloc(n ? n : 1);
    memcpy(copy, with, n);
    memmove(text + at + n, text + at + cut, *size - at - cut);
    memcpy(text + at, copy, n);
    *size = *size - cut + n;
    free(copy);
}

static inline void mutate(char *text, size_t *size, size_t cap, uint64_t *seed)
{
    static const char *const words[] = {
        "%",
        "@",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ",",
        ".",
        "*",
        ":",
        "-",
        "->",
        "=",
        "^",
        "\"",
        "0",
        "1",
        "2",
        "4",
        "8",
        "inf",
        "dp",
        "tp",
        "f32",
        "i64",
        "bool",
        "sum(",
        "dim",
        "ret",
        ";",
        "hex",
        "loc(\"",
        "add",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "yield",
        "splat",
        "0x1p-1074",
    };
    size_t at = below(seed, *size), n = below(seed, 12), from = below(seed, *size);
    n = n < *size - at ? n : *size - at;
    switch (below(seed, 7)) {
    case 0:
        text[at] = (char)next_random(seed);
        break;
    case 1:
        text[at] = (char)(text[at] ^ (1 << below(seed, 8)));
        break;
    case 2:
        splice(text, size, cap, at, n, "", 0);
        break;
    case 3: {
        const char *w = words[below(seed, sizeof words / sizeof words[0])];
        splice(text, size, cap, at, below(seed, 2) ? 0 : n, w, strlen(w));
        break;
    }
    case 4: {
        size_t len = below(seed, 40);
        splice(text, size, cap, at, 0, text + from, len < *size - from ? len : *size - from);
        break;
    }
    case 5: { /* another number */
        size_t k = at;
        while (k < *size && (text[k] < '0' || text[k] > '9'))
            k++;
        if (k < *size)
            text[k] = (char)('0' + below(seed, 10));
        break;
    }
    default:
        if (below(seed, 20) == 0)
            *size = at;
        break;
    }
}

static inline void mutations_of(const char *stem, int count, uint64_t seed, bool (*check)(const char *, size_t))
{
    size_t size, cap = 1 << 16;
    char *good = read_file(stem, &size), *text = malloc(cap);
    int parsed = 0;
    for (int i = 0; i < count; i++) {
        size_t n = size;
        memcpy(text, good, size);
        for (size_t k = 1 + below(&seed, 3); k > 0; k--)
            if (n)
                mutate(text, &n, cap, &seed);
        char *exact = malloc(n ? n : 1);
        memcpy(exact, text, n);
        parsed += check(exact, n);
        free(exact);
    }
    /* edits of comments and numbers leave a fair part readable: otherwise the test looks at little */
    assert_true(parsed > count / 50);
    free(good);
    free(text);
}

/* Bytes, or text of the right letters, without any structure. */
static inline size_t make_noise(uint64_t *seed, bool bytes, char *text, size_t cap)
{
    size_t n = below(seed, cap);
    for (size_t k = 0; k < n; k++)
        text[k] = bytes ? (char)next_random(seed) : "%@{}[]().,*-=\"\n;0189afx"[below(seed, 23)];
    return n;
}

#endif
