/* A growing text, and the writing of values into it so that reading gives the same value back. */
#ifndef AP_IR_BASE_TEXT_H
#define AP_IR_BASE_TEXT_H

#include "ir/base/arena.h"

#include <stdarg.h>

typedef struct ap_text {
    ap_arena *arena; /* borrowed */
    char *s;         /* NUL-terminated, or NULL while empty */
    size_t len, cap;
} ap_text;

void ap_text_init(ap_text *t, ap_arena *arena);
void ap_text_add(ap_text *t, const char *s);
void ap_text_add_n(ap_text *t, const char *s, size_t n);
void ap_text_addf(ap_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *ap_text_str(const ap_text *t); /* "" while empty */

/* "..." with \" \\ \n \t and \xHH escapes. */
void ap_text_add_quoted(ap_text *t, const char *s);
/* Hexadecimal float that reads back exactly; inf, -inf, nan. */
void ap_text_add_hexfloat(ap_text *t, double x);

/* Bytes of the UTF-8 character that s begins with; 0 when there is none. */
size_t ap_utf8_length(const char *s);

#endif
