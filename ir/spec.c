/* Letter specifications: reading, writing, building. */
#include "ir/spec.h"

#include <string.h>

void ap_spec_side_init(ap_spec_side *s)
{
    memset(s, 0, sizeof *s);
}

void ap_spec_side_dim(ap_spec_side *s)
{
    s->rank++;
    s->first[s->rank] = s->nletters;
}

void ap_spec_side_letter(ap_spec_side *s, char letter)
{
    s->letter[s->nletters++] = letter;
    s->first[s->rank] = s->nletters;
}

int ap_spec_side_find(const ap_spec_side *s, char letter)
{
    for (int i = 0; i < s->nletters; i++)
        if (s->letter[i] == letter)
            return i;
    return -1;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* One side up to `,`, `->` or the end. */
static bool parse_side(const char *s, size_t n, size_t *at, ap_spec_side *out, const char **why)
{
    ap_spec_side_init(out);
    bool group = false;
    for (; *at < n; (*at)++) {
        char c = s[*at];
        if (!group && (c == ',' || c == '-'))
            return true;
        if (!group && out->rank == AP_MAX_RANK && c != ')')
            return *why = "too many dimensions", false;
        if (is_letter(c)) {
            if (ap_spec_side_find(out, c) >= 0)
                return *why = "a letter occurs twice in one operand", false;
            if (out->nletters == AP_MAX_FACTORS)
                return *why = "too many factors", false;
            if (!group)
                ap_spec_side_dim(out);
            ap_spec_side_letter(out, c);
        } else if (c == '1' && !group) {
            ap_spec_side_dim(out);
        } else if (c == '(' && !group) {
            group = true;
            ap_spec_side_dim(out);
        } else if (c == ')' && group) {
            int k = out->first[out->rank] - out->first[out->rank - 1];
            if (k < 2 || k > AP_MAX_DIM_FACTORS)
                return *why = "a group holds 2 to 4 letters", false;
            group = false;
        } else {
            return *why = "unexpected character", false;
        }
    }
    return group ? (*why = "`(` is not closed", false) : true;
}

bool ap_spec_parse(const char *s, size_t n, ap_spec *out, const char **out_why)
{
    memset(out, 0, sizeof *out);
    size_t at = 0;
    while (true) {
        if (out->noperands == AP_MAX_SPEC_OPERANDS)
            return *out_why = "too many operands", false;
        if (!parse_side(s, n, &at, &out->operand[out->noperands++], out_why))
            return false;
        if (at >= n)
            return *out_why = "`->` is missing", false;
        if (s[at] == ',') {
            at++;
            continue;
        }
        break;
    }
    if (at + 1 >= n || s[at + 1] != '>')
        return *out_why = "`->` is missing", false;
    at += 2;
    if (!parse_side(s, n, &at, &out->result, out_why))
        return false;
    return at == n ? true : (*out_why = "text after the result", false);
}

static char *write_side(char *p, const ap_spec_side *s)
{
    for (int d = 0; d < s->rank; d++) {
        int k = s->first[d + 1] - s->first[d];
        if (k == 0)
            *p++ = '1';
        if (k > 1)
            *p++ = '(';
        for (int i = s->first[d]; i < s->first[d + 1]; i++)
            *p++ = s->letter[i];
        if (k > 1)
            *p++ = ')';
    }
    return p;
}

void ap_spec_str(const ap_spec *s, char out[AP_SPEC_STR_MAX])
{
    char *p = out;
    for (int i = 0; i < s->noperands; i++) {
        if (i)
            *p++ = ',';
        p = write_side(p, &s->operand[i]);
    }
    *p++ = '-';
    *p++ = '>';
    p = write_side(p, &s->result);
    *p = 0;
}
