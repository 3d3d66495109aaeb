/* The text form of a module: docs/ir.md gives the syntax. print(parse(print(m))) == print(m) in every state.
 * Also the verifier, which both the pipeline and the parser's users call. */
#ifndef AP_IR_TEXT_FORM_H
#define AP_IR_TEXT_FORM_H

#include "ir/base/text.h"
#include "ir/module.h"

void ap_module_print(const ap_module *m, ap_text *out);
/* `name` is used in messages: NAME:LINE:COLUMN: ... */
ap_status ap_module_parse(ap_ctx *ctx, const char *name, const char *text, size_t size, ap_module **out);

/* Parts, for dumps, pins and messages. */
void ap_type_print(const ap_module *m, ap_type t, ap_text *out); /* f32[8,128] @m[dp,-] sum(tp) */
void ap_sharding_print(const ap_module *m, ap_shape shape, ap_sharding s, ap_text *out); /* @m[dp,-] sum(tp) */
void ap_shape_print(const ap_shape_info *s, ap_text *out);                               /* [8,128,3.12.64] */
/* Reads a sharding ("@m[dp,-] sum(tp)", "[dp,-]" for the first mesh) for a value of the given shape. A dimension
 * given as `-` or one axis list stands for its first factor when the dimension has several. */
ap_status ap_sharding_parse(ap_module *m, const char *text, ap_shape shape, ap_sharding *out);

/* Every rule of the IR for the module's state: operands defined before use, types that infer agrees with,
 * one sharding per type from planned on and satisfying the node's rule exactly (ap_rule_read), collectives only in
 * explicit, no reshard there, bodies closed by yield, functions by ret with the declared types, unique names. All
 * violations are reported. */
ap_status ap_module_verify(ap_module *m);

#endif
