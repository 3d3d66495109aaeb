/* Composites whose composed rule test_rule.c tries: argument list, type of the first result, node. */
#ifndef AP_TESTS_IR_RULE_COMPOSITES_H
#define AP_TESTS_IR_RULE_COMPOSITES_H

static const char *const composites[][3] = {
    {"%x: f64[4,2.4]", "f64[4,2.4]",
     "  %r = composite softmax(%x) : f64[4,2.4] {\n    %m = reduce max %x {a(bc)->a1} : f64[4,1]\n"
     "    %d = sub %x, %m : f64[4,2.4]\n    %e = exp %d : f64[4,2.4]\n"
     "    %z = reduce sum %e {a(bc)->a1} : f64[4,1]\n    %p = div %e, %z : f64[4,2.4]\n    yield %p }\n"},
    {"%q: f64[2,4,4.2], %k: f64[2,8,4.2], %v: f64[2,8,4.2]", "f64[2,4,4.2]",
     "  %r = composite attention(%q, %k, %v) : f64[2,4,4.2] {\n"
     "    %s = contract %q, %k {bs(hd),bt(hd)->bhst} : f64[2,4,4,8]\n"
     "    %m = reduce max %s {bhst->bhs1} : f64[2,4,4,1]\n    %d = sub %s, %m : f64[2,4,4,8]\n"
     "    %e = exp %d : f64[2,4,4,8]\n    %z = reduce sum %e {bhst->bhs1} : f64[2,4,4,1]\n"
     "    %p = div %e, %z : f64[2,4,4,8]\n    %u = contract %p, %v {bhst,bt(hd)->bs(hd)} : f64[2,4,4.2]\n"
     "    yield %u }\n"},
    {"%x: f64[4,8], %g: f64[8], %b: f64[8]", "f64[4,8]",
     "  %r = composite norm(%x, %g, %b) : f64[4,8] {\n    %q = mul %x, %x : f64[4,8]\n"
     "    %z = reduce sum %q {ab->a1} : f64[4,1]\n    %i = rsqrt %z : f64[4,1]\n    %n = mul %x, %i : f64[4,8]\n"
     "    %s = mul %n, %g : f64[4,8]\n    %t = add %s, %b : f64[4,8]\n    yield %t }\n"},
    {"%x: f64[4,8], %y: f64[4,8]", "f64[4]",
     "  %r = composite dot(%x, %y) : f64[4] {\n    %a = mul %x, %y : f64[4,8]\n"
     "    %b = reduce sum %a {ab->a} : f64[4]\n    %n = neg %b : f64[4]\n    yield %n }\n"},
    {"%x: f64[4,8], %y: f64[4,8]", "f64[8,4]",
     "  %r = composite linear(%x, %y) : f64[8,4] {\n    %a = sub %x, %y : f64[4,8]\n"
     "    %b = view %a {ab->ba} : f64[8,4]\n    yield %b }\n"},
    {"%x: f64[4,8], %y: f64[4]", "f64[4,8]",
     "  %r, %t, %u = composite several(%x, %y) : f64[4,8], f64[4], f64[4] {\n    %b = exp %x : f64[4,8]\n"
     "    %c = neg %y : f64[4]\n    %m = reduce max %x {ab->a} : f64[4]\n    yield %b, %c, %m }\n"},
    {"%x: f64[4,8], %y: f64[8,4]", "f64[4]",
     "  %r, %t = composite sums(%x, %y) : f64[4], f64[4,4] {\n    %b = reduce sum %x {ab->a} : f64[4]\n"
     "    %c = contract %x, %y {ak,kb->ab} : f64[4,4]\n    yield %b, %c }\n"},
    {"%w: f64[8,4], %i: i64[2,4], %x: f64[2,4,4]", "f64[2,4,4]",
     "  %r = composite lookup(%w, %i, %x) : f64[2,4,4] {\n    %e = gather %w, %i {vh,bs->bsh} : f64[2,4,4]\n"
     "    %a = mul %e, %x : f64[2,4,4]\n    yield %a }\n"},
    {"%x: f64[4,8]", "f64[8]",
     "  %r = composite gram(%x) : f64[8] {\n    %b = contract %x, %x {ka,kb->ab} : f64[8,8]\n"
     "    %c = reduce sum %b {ab->a} : f64[8]\n    yield %c }\n"},
    {"%x: f64[4,8,8]", "f64[4,8,8]",
     "  %r = composite causal(%x) : f64[4,8,8] {\n    %i = iota dim 0 : i64[8,8]\n"
     "    %j = iota dim 1 : i64[8,8]\n    %c = le %j, %i : bool[8,8]\n    %n = neg %x : f64[4,8,8]\n"
     "    %s = select %c, %x, %n : f64[4,8,8]\n    yield %s }\n"},
    /* as exporters write it: means by reduce and scale, both moments; statistics are results as well */
    {"%x: f64[4,2.4], %g: f64[2.4], %b: f64[2.4]", "f64[4,2.4]",
     "  %r, %t, %u = composite layernorm(%x, %g, %b) : f64[4,2.4], f64[4,1], f64[4,1] {\n"
     "    %k = constant splat 0.125 : f64[]\n    %h = constant splat 0x1p-10 : f64[]\n"
     "    %s = reduce sum %x {a(bc)->a1} : f64[4,1]\n    %m = mul %s, %k : f64[4,1]\n"
     "    %d = sub %x, %m : f64[4,2.4]\n    %q = mul %d, %d : f64[4,2.4]\n"
     "    %v = reduce sum %q {a(bc)->a1} : f64[4,1]\n    %w = mul %v, %k : f64[4,1]\n"
     "    %e = add %w, %h : f64[4,1]\n    %i = rsqrt %e : f64[4,1]\n    %n = mul %d, %i : f64[4,2.4]\n"
     "    %o = mul %n, %g : f64[4,2.4]\n    %y = add %o, %b : f64[4,2.4]\n    yield %y, %m, %i }\n"},
    /* a product of two partial values, of which the smaller is completed; the path shrinks on the way */
    {"%x: f64[4,8], %y: f64[8,2]", "f64[4,2]",
     "  %r = composite product(%x, %y) : f64[4,2] {\n    %a = reduce sum %x {ab->a1} : f64[4,1]\n"
     "    %b = contract %x, %y {ak,kc->ac} : f64[4,2]\n    %c = mul %a, %b : f64[4,2]\n    yield %c }\n"},
    {"%x: f64[4,8], %y: f64[8,4]", "f64[4]",
     "  %r = composite shrinks(%x, %y) : f64[4] {\n    %b = contract %x, %y {ak,kc->ac} : f64[4,4]\n"
     "    %s = reduce sum %b {ac->a} : f64[4]\n    %e = exp %s : f64[4]\n    yield %e }\n"},
    /* one path to a yield, one to a node that is not linear; the square of a partial value; minimum and maximum */
    {"%x: f64[4,8], %y: f64[4,8]", "f64[4]",
     "  %r, %t, %u = composite forks(%x, %y) : f64[4], f64[4,8], f64[4] {\n"
     "    %a = reduce sum %x {ab->a} : f64[4]\n    %n = neg %a : f64[4]\n    %q = mul %a, %a : f64[4]\n"
     "    %s = reduce min %y {ab->a} : f64[4]\n    %p = add %q, %s : f64[4]\n    %z = exp %y : f64[4,8]\n"
     "    yield %n, %z, %p }\n"},
    {"%x: f64[4,8]", "f64[4,8]",
     "  %r = composite range(%x) : f64[4,8] {\n    %a = reduce min %x {ab->a1} : f64[4,1]\n"
     "    %b = reduce max %x {ab->a1} : f64[4,1]\n    %c = sub %b, %a : f64[4,1]\n"
     "    %d = div %x, %c : f64[4,8]\n    yield %d }\n"},
    /* a composite in a composite, cut inside, and its result completed outside of it */
    {"%x: f64[4,8], %y: f64[4,8]", "f64[4]",
     "  %r = composite outer(%x, %y) : f64[4] {\n    %p = composite inner(%x) : f64[4,8] {\n"
     "      %m = reduce max %x {ab->a1} : f64[4,1]\n      %d = sub %x, %m : f64[4,8]\n"
     "      %e = exp %d : f64[4,8]\n      yield %e }\n"
     "    %q = composite dot(%p, %y) : f64[4] {\n      %t = mul %p, %y : f64[4,8]\n"
     "      %s = reduce sum %t {ab->a} : f64[4]\n      yield %s }\n"
     "    %z = sigmoid %q : f64[4]\n    yield %z }\n"},
    /* what is not splittable at all stays whole: a product over the row */
    {"%x: f64[4,8]", "f64[4,8]",
     "  %r = composite prods(%x) : f64[4,8] {\n    %a = reduce prod %x {ab->a1} : f64[4,1]\n"
     "    %s = reduce sum %x {ab->a1} : f64[4,1]\n    %b = add %a, %s : f64[4,1]\n"
     "    %d = sub %x, %b : f64[4,8]\n    yield %d }\n"},
    {"%w: f64[8,4], %i: i64[4]", "f64[4,4]",
     "  %r = composite embed(%w, %i) : f64[4,4] {\n    %e = gather %w, %i {vh,b->bh} : f64[4,4]\n"
     "    %a = tanh %e : f64[4,4]\n    yield %a }\n"},
    /* a bag of embeddings, weighted and masked: linear from the table to the sum */
    {"%t: f64[8,4], %i: i64[3,5], %w: f64[3,5,1], %c: bool[3,5,1]", "f64[3,4]",
     "  %r = composite embed(%t, %i, %w, %c) : f64[3,4] {\n    %e = gather %t, %i {vd,bl->bld} : f64[3,5,4]\n"
     "    %m = mul %e, %w : f64[3,5,4]\n    %z = constant splat 0x0p+0 : f64[]\n"
     "    %s = select %c, %z, %m : f64[3,5,4]\n    %y = reduce sum %s {bld->bd} : f64[3,4]\n    yield %y }\n"},
};

#endif
