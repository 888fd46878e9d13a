// The arithmetic of History Reference, one pair of components at a time.
//
// Both the CPU and the CUDA kernels are built from these functions, so that what is tested on one
// holds for the other. A pair (2j, 2j+1) of an embedding is read as a complex number; rotating it by
// its age and fading it is then one complex product.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define REMASK_FN __host__ __device__ __forceinline__
#else
#define REMASK_FN inline
#endif

namespace remask {

// Storage types as the Python side numbers them.
enum Dtype : int { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2, kFloat64 = 3 };

struct BFloat16 {
  uint16_t bits;
};

REMASK_FN float to_acc(float x) { return x; }
REMASK_FN double to_acc(double x) { return x; }
REMASK_FN float to_acc(BFloat16 x) {  // bfloat16 is the upper half of a float32
  const uint32_t wide = static_cast<uint32_t>(x.bits) << 16;
  float out;
  memcpy(&out, &wide, sizeof(out));
  return out;
}

template <class acc_t>
struct Pair {
  acc_t re, im;
};

template <class acc_t>
REMASK_FN Pair<acc_t> operator+(Pair<acc_t> a, Pair<acc_t> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class acc_t>
REMASK_FN Pair<acc_t> operator-(Pair<acc_t> a, Pair<acc_t> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class acc_t>
REMASK_FN Pair<acc_t> operator*(Pair<acc_t> a, Pair<acc_t> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
// The gradient of x -> c * x, which turns the other way.
template <class acc_t>
REMASK_FN Pair<acc_t> conj_times(Pair<acc_t> c, Pair<acc_t> g) {
  return {c.re * g.re + c.im * g.im, c.re * g.im - c.im * g.re};
}

// A position's history is constant in three pieces: wrong, then MASK, then target. Counting states
// from the youngest, piece s holds those of age edge[s+1] up to edge[s], so its coefficient is
// C[edge[s]] - C[edge[s+1]], where C[m] sums the weights of the m youngest states and C[0] = 0.
struct Pieces {
  int token[3];
  int edge[4];

  REMASK_FN bool empty(int s) const { return edge[s] == edge[s + 1]; }
};

REMASK_FN int at_most(int a, int b) { return a < b ? a : b; }

REMASK_FN Pieces pieces_at(int target, int wrong, int mask_id, int masked_at, int revealed_at,
                           int step) {
  const int states = step + 1;
  return {{wrong, mask_id, target},
          {states, states - at_most(masked_at, states), states - at_most(revealed_at, states), 0}};
}

}  // namespace remask
