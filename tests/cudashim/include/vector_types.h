/* Vector types of CUDA; for tests, see cudashim.h. */
#ifndef CUDASHIM_VECTOR_TYPES_H
#define CUDASHIM_VECTOR_TYPES_H

#define CUDASHIM_VECTORS(T, name)                                                                                      \
    typedef struct name##1                                                                                             \
    {                                                                                                                  \
        T x;                                                                                                           \
    }                                                                                                                  \
    name##1;                                                                                                           \
    typedef struct name##2                                                                                             \
    {                                                                                                                  \
        T x, y;                                                                                                        \
    }                                                                                                                  \
    __attribute__((aligned(2 * sizeof(T)))) name##2;                                                                   \
    typedef struct name##3                                                                                             \
    {                                                                                                                  \
        T x, y, z;                                                                                                     \
    }                                                                                                                  \
    name##3;                                                                                                           \
    typedef struct name##4                                                                                             \
    {                                                                                                                  \
        T x, y, z, w;                                                                                                  \
    }                                                                                                                  \
    __attribute__((aligned(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16))) name##4;                                         \
    static inline name##1 make_##name##1(T x)                                                                          \
    {                                                                                                                  \
        name##1 v = {x};                                                                                               \
        return v;                                                                                                      \
    }                                                                                                                  \
    static inline name##2 make_##name##2(T x, T y)                                                                     \
    {                                                                                                                  \
        name##2 v = {x, y};                                                                                            \
        return v;                                                                                                      \
    }                                                                                                                  \
    static inline name##3 make_##name##3(T x, T y, T z)                                                                \
    {                                                                                                                  \
        name##3 v = {x, y, z};                                                                                         \
        return v;                                                                                                      \
    }                                                                                                                  \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                                                           \
    {                                                                                                                  \
        name##4 v = {x, y, z, w};                                                                                      \
        return v;                                                                                                      \
    }

CUDASHIM_VECTORS(signed char, char)
CUDASHIM_VECTORS(unsigned char, uchar)
CUDASHIM_VECTORS(short, short)
CUDASHIM_VECTORS(unsigned short, ushort)
CUDASHIM_VECTORS(int, int)
CUDASHIM_VECTORS(unsigned int, uint)
CUDASHIM_VECTORS(long long, longlong)
CUDASHIM_VECTORS(unsigned long long, ulonglong)
CUDASHIM_VECTORS(float, float)
CUDASHIM_VECTORS(double, double)

typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
#endif
} dim3;

#endif
