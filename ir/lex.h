/* Reading the text forms character by character. There are no token objects: what a `.` or a digit means
 * depends on the place (a name, a shape, a sharding, a float), so parsers ask for what they expect next.
 * White space, newlines and comments (`;` to the end of the line) may stand between any two parts.
 *
 * Any bytes may be fed in: the first error is recorded as NAME:LINE:COLUMN: message and ends the parse. */
#ifndef AP_IR_LEX_H
#define AP_IR_LEX_H

#include "ir/base/ctx.h"

typedef struct ap_lex {
    ap_ctx *ctx;
    const char *name; /* of the text, for messages; NULL: the text itself is quoted */
    const char *text; /* borrowed; not NUL-terminated */
    size_t size, pos;
    size_t mark; /* where the part last asked for begins: what errors point at */
} ap_lex;

/* A number before its type is known. */
typedef struct ap_lex_number {
    bool integer, negative; /* integer: value is (-1 if negative) * magnitude */
    uint64_t magnitude;
    double f; /* always set */
} ap_lex_number;

void ap_lex_init(ap_lex *l, ap_ctx *ctx, const char *name, const char *text, size_t size);
ap_status ap_lex_error(ap_lex *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ap_lex_skip(ap_lex *l); /* white space and comments; sets mark */
bool ap_lex_at_end(ap_lex *l);
int ap_lex_peek(ap_lex *l); /* next character as unsigned, or -1 */

/* Punctuation, exactly as given. */
bool ap_lex_accept(ap_lex *l, const char *s);
ap_status ap_lex_expect(ap_lex *l, const char *s);

/* A word: letters, digits and _, not beginning with a digit. accept_word leaves everything alone when the
 * next word is another one. */
bool ap_lex_peek_word(ap_lex *l, const char **out, size_t *out_n);
bool ap_lex_accept_word(ap_lex *l, const char *word);
ap_status ap_lex_expect_word(ap_lex *l, const char *word);
/* Any word, copied into the context's arena. `what` is used in the message. */
ap_status ap_lex_word(ap_lex *l, const char *what, const char **out);

/* A bare name or a quoted one, never empty. `out_digits`: bare and all digits (may be NULL: then such a name is an
 * error). */
ap_status ap_lex_name(ap_lex *l, const char *what, ap_name *out, bool *out_digits);
/* A word or a quoted name: axis names, which stand next to `.` and `*`. */
ap_status ap_lex_axis(ap_lex *l, ap_name *out);
ap_status ap_lex_quoted(ap_lex *l, const char *what, const char **out, size_t *out_n);
ap_status ap_lex_quoted_name(ap_lex *l, const char *what, ap_name *out);

ap_status ap_lex_i64(ap_lex *l, const char *what, int64_t *out); /* digits with an optional - */
ap_status ap_lex_u64(ap_lex *l, const char *what, uint64_t *out);
/* lo <= value <= hi, else a message that names both. */
ap_status ap_lex_range(ap_lex *l, const char *what, int64_t lo, int64_t hi, int64_t *out);
/* Integer, decimal or hexadecimal float, inf, -inf, nan. */
ap_status ap_lex_num(ap_lex *l, ap_lex_number *out);
/* "0011ff": an even number of hexadecimal digits, as bytes in the context's arena. */
ap_status ap_lex_hex(ap_lex *l, const uint8_t **out, size_t *out_n);

/* loc("node", "OpType") if it is there; `file` 0 for none. */
ap_status ap_lex_loc(ap_lex *l, ap_loc *out);

/* Whether a name can be written without quotes. */
bool ap_name_is_bare(const char *s);
bool ap_name_is_word(const char *s);

#endif
