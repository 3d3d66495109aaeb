/* Collectives on the memory of all ranks. A sum goes around as a ring does, part by part from another rank on, so it is
 * rounded in another order than sums in the order of ranks; what must not depend on it can be told from what may. */
#include <algorithm>

#include "collective.h"

namespace shim
{

namespace
{
float read16(const void *p, bool half)
{
    unsigned short u;
    memcpy(&u, p, 2);
    return half ? cudashim_half_to_float(u) : cudashim_bf16_to_float(u);
}

template <typename T> T join(T a, T b, ncclRedOp_t op)
{
    switch (op) {
    case ncclSum:
    case ncclAvg:
        return (T)(a + b);
    case ncclProd:
        return (T)(a * b);
    case ncclMax:
        return b > a || b != b ? b : a;
    default:
        return b < a || b != b ? b : a;
    }
}

/* Signed sums wrap, as on a GPU. */
template <typename T> T join_integer(T a, T b, ncclRedOp_t op)
{
    typedef typename std::make_unsigned<T>::type U;
    if (op == ncclSum || op == ncclAvg)
        return (T)(U)((unsigned long long)(U)a + (U)b);
    if (op == ncclProd)
        return (T)(U)((unsigned long long)(U)a * (U)b);
    return op == ncclMax ? std::max(a, b) : std::min(a, b);
}

template <typename T> void fold_one(char *into, const char *from, ncclRedOp_t op)
{
    T a, b, r;
    memcpy(&a, into, sizeof a);
    memcpy(&b, from, sizeof b);
    if constexpr (std::is_integral<T>::value)
        r = join_integer(a, b, op);
    else
        r = join(a, b, op);
    memcpy(into, &r, sizeof r);
}

void fold_16(char *into, const char *from, ncclRedOp_t op, bool half)
{
    float r = join(read16(into, half), read16(from, half), op);
    unsigned short u = half ? cudashim_float_to_half(r) : cudashim_float_to_bf16(r);
    memcpy(into, &u, 2);
}

void fold(char *into, const char *from, ncclRedOp_t op, ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
        return fold_one<int8_t>(into, from, op);
    case ncclUint8:
        return fold_one<uint8_t>(into, from, op);
    case ncclInt32:
        return fold_one<int32_t>(into, from, op);
    case ncclUint32:
        return fold_one<uint32_t>(into, from, op);
    case ncclInt64:
        return fold_one<int64_t>(into, from, op);
    case ncclUint64:
        return fold_one<uint64_t>(into, from, op);
    case ncclFloat32:
        return fold_one<float>(into, from, op);
    case ncclFloat64:
        return fold_one<double>(into, from, op);
    default:
        return fold_16(into, from, op, type == ncclFloat16);
    }
}

void average(char *at, size_t n, ncclDataType_t type)
{
    if (type == ncclFloat32) {
        float v;
        memcpy(&v, at, 4);
        v /= (float)n;
        memcpy(at, &v, 4);
    } else if (type == ncclFloat64) {
        double v;
        memcpy(&v, at, 8);
        v /= (double)n;
        memcpy(at, &v, 8);
    } else if (type == ncclFloat16 || type == ncclBfloat16) {
        float v = read16(at, type == ncclFloat16) / (float)n;
        unsigned short u = type == ncclFloat16 ? cudashim_float_to_half(v) : cudashim_float_to_bf16(v);
        memcpy(at, &u, 2);
    }
}

typedef std::vector<std::shared_ptr<Part>> Ranks;

std::vector<char> folded(const Ranks &parts, size_t count)
{
    const Call &c = parts[0]->call;
    size_t size = type_size(c.type), n = parts.size(), chunk = (count + n - 1) / n;
    std::vector<char> sum(count * size);
    for (size_t i = 0; i < count; i++) {
        size_t first = i / chunk + 1;
        char *at = sum.data() + i * size;
        memcpy(at, (const char *)parts[first % n]->call.send + i * size, size);
        for (size_t k = 1; k < n; k++)
            fold(at, (const char *)parts[(first + k) % n]->call.send + i * size, c.op, c.type);
        if (c.op == ncclAvg)
            average(at, n, c.type);
    }
    return sum;
}

void read(const Part &p, size_t count)
{
    check_range_of(p.op.get(), p.call.send, count * type_size(p.call.type), false);
}

void write(const Part &p, size_t at, const char *from, size_t bytes)
{
    char *to = (char *)p.call.recv + at;
    if (!p.call.recv) /* a rank of another process */
        return;
    check_range_of(p.op.get(), to, bytes, true);
    memcpy(to, from, bytes);
}
} // namespace

const char *call_name(CallKind kind)
{
    static const char *const names[] = {"ncclAllReduce",     "ncclReduce",   "ncclBroadcast", "ncclAllGather",
                                        "ncclReduceScatter", "ncclAlltoAll", "ncclSend",      "ncclRecv"};
    return names[kind];
}

size_t type_size(ncclDataType_t type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return (unsigned)type < sizeof sizes / sizeof *sizes ? sizes[type] : 0;
}

void collective_run(const Ranks &parts)
{
    const Call &c = parts[0]->call;
    size_t n = parts.size(), size = type_size(c.type), bytes = c.count * size;
    std::vector<char> all;
    switch (c.kind) {
    case ALL_REDUCE:
    case REDUCE:
        for (auto &p : parts)
            read(*p, c.count);
        all = folded(parts, c.count);
        for (size_t r = 0; r < n; r++)
            if (c.kind == ALL_REDUCE || (int)r == c.peer)
                write(*parts[r], 0, all.data(), bytes);
        break;
    case REDUCE_SCATTER:
        for (auto &p : parts)
            read(*p, c.count * n);
        all = folded(parts, c.count * n);
        for (size_t r = 0; r < n; r++)
            write(*parts[r], 0, all.data() + r * bytes, bytes);
        break;
    case BROADCAST:
        read(*parts[(size_t)c.peer], c.count);
        all.assign((const char *)parts[(size_t)c.peer]->call.send,
                   (const char *)parts[(size_t)c.peer]->call.send + bytes);
        for (auto &p : parts)
            write(*p, 0, all.data(), bytes);
        break;
    case ALL_GATHER:
        for (auto &p : parts) {
            read(*p, c.count);
            all.insert(all.end(), (const char *)p->call.send, (const char *)p->call.send + bytes);
        }
        for (auto &p : parts)
            write(*p, 0, all.data(), n * bytes);
        break;
    case ALL_TO_ALL:
        for (auto &p : parts) {
            read(*p, c.count * n);
            all.insert(all.end(), (const char *)p->call.send, (const char *)p->call.send + n * bytes);
        }
        for (size_t r = 0; r < n; r++)
            for (size_t s = 0; s < n; s++)
                write(*parts[r], s * bytes, all.data() + (s * n + r) * bytes, bytes);
        break;
    case SEND:
    case RECV: /* parts: the sender's, the receiver's */
        read(*parts[0], c.count);
        write(*parts[1], 0, (const char *)parts[0]->call.send, bytes);
        break;
    }
}

} // namespace shim
