// CPU kernels of the history operators: OpenMP over positions or columns, AVX2 where the machine has it.
//
// Plain C functions without a torch header: the library builds in seconds, fits every torch release,
// and is called through ctypes. Shapes, types and contiguity are the caller's promise (native.py).

#include <algorithm>
#include <cstdint>

#include "history.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define REMASK_AVX2 1
#endif

using namespace remask;

namespace {

// Columns handled at once. Table, weight and output slices of this width stay in the first-level
// cache, so a long horizon's larger table costs no more than a short one's.
constexpr int64_t kTile = 256;
constexpr int64_t kPositionsPerTask = 64;

#ifdef REMASK_AVX2
inline __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 load8(const BFloat16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
// Four complex products, components interleaved.
inline __m256 times8(__m256 c, __m256 x) {
  const __m256 swapped = _mm256_mul_ps(_mm256_movehdup_ps(c), _mm256_permute_ps(x, 0xB1));
  return _mm256_fmaddsub_ps(_mm256_moveldup_ps(c), x, swapped);
}
inline __m256 conj_times8(__m256 c, __m256 g) {
  const __m256 swapped = _mm256_mul_ps(_mm256_movehdup_ps(c), _mm256_permute_ps(g, 0xB1));
  return _mm256_fmsubadd_ps(_mm256_moveldup_ps(c), g, swapped);
}
#endif

template <class acc_t, class T>
inline Pair<acc_t> load_pair(const T* p) {
  return {static_cast<acc_t>(to_acc(p[0])), static_cast<acc_t>(to_acc(p[1]))};
}

template <class weight_t, class acc_t>
void step_row(const acc_t* acc, const weight_t* embed, const acc_t* turn, acc_t* out,
              int64_t width) {
  int64_t d = 0;
#ifdef REMASK_AVX2
  if constexpr (sizeof(acc_t) == 4) {
    for (; d + 8 <= width; d += 8) {
      const __m256 past = times8(load8(turn + d), load8(acc + d));
      _mm256_storeu_ps(out + d, _mm256_add_ps(load8(embed + d), past));
    }
  }
#endif
  for (; d < width; d += 2) {
    const Pair<acc_t> sum = load_pair<acc_t>(embed + d) +
                            load_pair<acc_t>(turn + d) * load_pair<acc_t>(acc + d);
    out[d] = sum.re;
    out[d + 1] = sum.im;
  }
}

template <class weight_t, class acc_t>
void step_all(const acc_t* acc, const weight_t* embed, const acc_t* turn, acc_t* out, int64_t rows,
              int64_t width, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < rows; ++r)
    step_row(acc + r * width, embed + r * width, turn, out + r * width, width);
}

// The trajectories of a batch: [B, N] each, step [B].
struct Rows {
  const int32_t *target, *wrong, *masked_at, *revealed_at, *step;
  int64_t positions;  // N
  int32_t mask_id;

  Pieces pieces(int64_t i) const {
    return pieces_at(target[i], wrong[i], mask_id, masked_at[i], revealed_at[i],
                     step[i / positions]);
  }
};

// out[0:width] = sum over kCount pieces of (table[s] - table[s + 1]) * weight[s], the last table
// row being C[0] = 0 and left out.
template <int kCount, class weight_t, class acc_t>
void embed_slice(const weight_t* const* weight, const acc_t* const* table, acc_t* out,
                 int64_t width) {
  int64_t d = 0;
#ifdef REMASK_AVX2
  if constexpr (sizeof(acc_t) == 4) {
    for (; d + 8 <= width; d += 8) {
      __m256 sum = _mm256_setzero_ps();
      __m256 newer = _mm256_setzero_ps();
      for (int s = kCount - 1; s >= 0; --s) {
        const __m256 upto = load8(table[s] + d);
        const __m256 c = s == kCount - 1 ? upto : _mm256_sub_ps(upto, newer);
        const __m256 term = times8(c, load8(weight[s] + d));
        sum = s == kCount - 1 ? term : _mm256_add_ps(sum, term);
        newer = upto;
      }
      _mm256_storeu_ps(out + d, sum);
    }
  }
#endif
  for (; d < width; d += 2) {
    Pair<acc_t> sum{0, 0}, newer{0, 0};
    for (int s = kCount - 1; s >= 0; --s) {
      const Pair<acc_t> upto = load_pair<acc_t>(table[s] + d);
      sum = sum + (upto - newer) * load_pair<acc_t>(weight[s] + d);
      newer = upto;
    }
    out[d] = sum.re;
    out[d + 1] = sum.im;
  }
}

template <class weight_t, class acc_t>
void embed_all(const weight_t* weight, const Rows& rows, const acc_t* table, acc_t* out,
               int64_t batch, int64_t width, int threads) {
  const int64_t total = batch * rows.positions;
  const int64_t tiles = (width + kTile - 1) / kTile;
  const int64_t tasks = (total + kPositionsPerTask - 1) / kPositionsPerTask;
#pragma omp parallel for num_threads(threads) schedule(static) collapse(2)
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t column = tile * kTile;
      const int64_t columns = std::min(kTile, width - column);
      const int64_t end = std::min(total, (task + 1) * kPositionsPerTask);
      for (int64_t i = task * kPositionsPerTask; i < end; ++i) {
        const Pieces p = rows.pieces(i);
        const weight_t* source[3];
        const acc_t* upto[3];
        int count = 0;
        for (int s = 0; s < 3; ++s) {
          if (p.empty(s)) continue;
          source[count] = weight + p.token[s] * width + column;
          upto[count++] = table + p.edge[s] * width + column;
        }
        acc_t* to = out + i * width + column;
        if (count == 1) embed_slice<1>(source, upto, to, columns);
        if (count == 2) embed_slice<2>(source, upto, to, columns);
        if (count == 3) embed_slice<3>(source, upto, to, columns);
      }
    }
  }
}

// to[0:width] += conj(upto - newer) * grad; `newer` may be null, for C[0] = 0.
template <class acc_t>
void add_slice(const acc_t* grad, const acc_t* upto, const acc_t* newer, acc_t* to,
               int64_t width) {
  int64_t d = 0;
#ifdef REMASK_AVX2
  if constexpr (sizeof(acc_t) == 4) {
    for (; d + 8 <= width; d += 8) {
      __m256 c = load8(upto + d);
      if (newer) c = _mm256_sub_ps(c, load8(newer + d));
      _mm256_storeu_ps(to + d, _mm256_add_ps(load8(to + d), conj_times8(c, load8(grad + d))));
    }
  }
#endif
  for (; d < width; d += 2) {
    Pair<acc_t> c = load_pair<acc_t>(upto + d);
    if (newer) c = c - load_pair<acc_t>(newer + d);
    const Pair<acc_t> sum =
        load_pair<acc_t>(to + d) + conj_times(c, load_pair<acc_t>(grad + d));
    to[d] = sum.re;
    to[d + 1] = sum.im;
  }
}

// Threads own columns, not positions: no two write the same element, so there are no atomics and
// the sum's order, hence its bits, is the same for any number of threads.
template <class acc_t>
void backward_all(const acc_t* grad, const Rows& rows, const acc_t* table, acc_t* grad_weight,
                  int64_t batch, int64_t width, int threads) {
  const int64_t total = batch * rows.positions;
  constexpr int64_t kLine = 64 / sizeof(acc_t);  // a cache line belongs to one thread
  const int64_t share = (width + threads - 1) / threads;
  const int64_t tile = std::min(kTile, std::max(kLine, (share + kLine - 1) / kLine * kLine));
  const int64_t tiles = (width + tile - 1) / tile;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t column = t * tile;
    const int64_t columns = std::min(tile, width - column);
    for (int64_t i = 0; i < total; ++i) {
      const Pieces p = rows.pieces(i);
      for (int s = 0; s < 3; ++s) {
        if (p.empty(s)) continue;
        const acc_t* newer = p.edge[s + 1] > 0 ? table + p.edge[s + 1] * width + column : nullptr;
        add_slice(grad + i * width + column, table + p.edge[s] * width + column, newer,
                  grad_weight + p.token[s] * width + column, columns);
      }
    }
  }
}

template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}
template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}

constexpr int kUnsupported = -1;

}  // namespace

extern "C" {

int remask_history_step(const void* acc, const void* embed, const void* turn, void* out,
                        int64_t rows, int64_t width, int dtype, int threads) {
  switch (dtype) {
    case kFloat32:
      step_all(as<float>(acc), as<float>(embed), as<float>(turn), as<float>(out), rows, width,
               threads);
      return 0;
    case kBFloat16:
      step_all(as<float>(acc), as<BFloat16>(embed), as<float>(turn), as<float>(out), rows, width,
               threads);
      return 0;
    case kFloat64:
      step_all(as<double>(acc), as<double>(embed), as<double>(turn), as<double>(out), rows, width,
               threads);
      return 0;
    default:
      return kUnsupported;
  }
}

int remask_history_embed(const void* weight, const int32_t* target, const int32_t* wrong,
                         const int32_t* masked_at, const int32_t* revealed_at, const int32_t* step,
                         const void* table, void* out, int64_t batch, int64_t positions,
                         int64_t width, int32_t mask_id, int dtype, int threads) {
  const Rows rows{target, wrong, masked_at, revealed_at, step, positions, mask_id};
  switch (dtype) {
    case kFloat32:
      embed_all(as<float>(weight), rows, as<float>(table), as<float>(out), batch, width, threads);
      return 0;
    case kBFloat16:
      embed_all(as<BFloat16>(weight), rows, as<float>(table), as<float>(out), batch, width,
                threads);
      return 0;
    case kFloat64:
      embed_all(as<double>(weight), rows, as<double>(table), as<double>(out), batch, width,
                threads);
      return 0;
    default:
      return kUnsupported;
  }
}

// `grad_weight` [V, D] must be zero on entry; `dtype` is that of grad, float32 or float64.
int remask_history_embed_backward(const void* grad, const int32_t* target, const int32_t* wrong,
                                  const int32_t* masked_at, const int32_t* revealed_at,
                                  const int32_t* step, const void* table, void* grad_weight,
                                  int64_t batch, int64_t positions, int64_t width, int32_t mask_id,
                                  int dtype, int threads) {
  const Rows rows{target, wrong, masked_at, revealed_at, step, positions, mask_id};
  switch (dtype) {
    case kFloat32:
      backward_all(as<float>(grad), rows, as<float>(table), as<float>(grad_weight), batch, width,
                   threads);
      return 0;
    case kFloat64:
      backward_all(as<double>(grad), rows, as<double>(table), as<double>(grad_weight), batch, width,
                   threads);
      return 0;
    default:
      return kUnsupported;
  }
}

// Are all ids below `vocabulary`, no target MASK, 0 <= masked_at <= revealed_at <= horizon and
// 0 <= step <= horizon? One pass; the caller names the fault when the answer is 0.
int remask_rows_are_valid(const int32_t* target, const int32_t* wrong, const int32_t* masked_at,
                          const int32_t* revealed_at, const int32_t* step, int64_t batch,
                          int64_t positions, int32_t vocabulary, int32_t mask_id, int32_t horizon) {
  int bad = 0;
  for (int64_t i = 0; i < batch * positions; ++i) {
    bad |= (target[i] < 0) | (target[i] >= vocabulary) | (target[i] == mask_id) | (wrong[i] < 0) |
           (wrong[i] >= vocabulary) | (masked_at[i] < 0) | (masked_at[i] > revealed_at[i]) |
           (revealed_at[i] > horizon);
  }
  for (int64_t b = 0; b < batch; ++b) bad |= (step[b] < 0) | (step[b] > horizon);
  return bad == 0;
}

}  // extern "C"
