/* Letters: how the factors of operands and results correspond (DESIGN §5).
 *
 *     {bsk,k(thd)->bs(thd)}
 *
 * One letter per factor; parentheses group the factors of one dimension; `1` is a dimension without
 * factors. A letter occurs once in an operand at most. A letter of several operands has one extent.
 *
 *   contract   letters absent from the result are summed; a letter of one operand only must be in the result
 *   reduce     one operand; letters absent from the result are reduced; `1` where the dimension is kept
 *   view       one operand, same elements: transpose, expand (letters of the result only), squeeze,
 *              nested reshape; every operand letter is in the result
 *   gather     {vh,bs->bsh}: operand 1 holds indices; the one letter of operand 0 that is in neither
 *              operand 1 nor the result is the indexed one; letters common to both operands are batch
 *   scatter    {vh,bs,bsh->vh}: operand 2 holds the updates; the result is like operand 0, whose one letter that
 *              neither the indices nor the updates have is the indexed one; every letter of the indices is in the
 *              updates, every other letter of the updates in operand 0
 */
#ifndef AP_IR_SPEC_H
#define AP_IR_SPEC_H

#include "ir/type.h"

#define AP_MAX_SPEC_OPERANDS 3

typedef struct ap_spec_side {
    uint8_t rank;
    uint8_t nletters;
    uint8_t first[AP_MAX_RANK + 1]; /* dimension d has letters first[d] .. first[d+1]-1 */
    char letter[AP_MAX_FACTORS];    /* a-z, then A-Z */
} ap_spec_side;

typedef struct ap_spec {
    uint8_t noperands; /* 1 to 3 */
    ap_spec_side operand[AP_MAX_SPEC_OPERANDS];
    ap_spec_side result;
} ap_spec;

/* Reads "bsk,k(thd)->bs(thd)" (without braces). On failure *out_why is a constant text. */
bool ap_spec_parse(const char *s, size_t n, ap_spec *out, const char **out_why);
/* Writes without braces; the buffer must hold AP_SPEC_STR_MAX bytes. */
#define AP_SPEC_STR_MAX 192
void ap_spec_str(const ap_spec *s, char out[AP_SPEC_STR_MAX]);
int ap_spec_side_find(const ap_spec_side *s, char letter); /* position or -1 */

/* Building: a fresh side, then dimensions left to right, then letters of the current dimension. */
void ap_spec_side_init(ap_spec_side *s);
void ap_spec_side_dim(ap_spec_side *s);
void ap_spec_side_letter(ap_spec_side *s, char letter);

#endif
