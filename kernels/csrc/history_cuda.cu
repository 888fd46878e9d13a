// CUDA kernels of the history operators, with C launchers called through ctypes.
//
// No torch header: the caller passes raw pointers and torch's current stream. Without a GPU the same
// kernel bodies are compiled by the host compiler (host_shim.h), which is how they are tested.

#include <cstdint>

#include "history.h"

#ifdef REMASK_HOST_SHIM
#include "host_shim.h"
#else
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define REMASK_LAUNCH(kernel, grid, block, stream, ...) \
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)
using Float16 = __half;
REMASK_FN float to_acc(Float16 x) { return __half2float(x); }
#endif

using namespace remask;

namespace {

constexpr int kThreads = 128;

// A run of kVec neighbouring elements, moved by one load or store.
template <class T, int kVec>
struct alignas(sizeof(T) * kVec) Run {
  T at[kVec];
};

template <int kVec, class T>
__device__ __forceinline__ Run<float, kVec> load(const T* p) {
  const Run<T, kVec> raw = *reinterpret_cast<const Run<T, kVec>*>(p);
  Run<float, kVec> out;
#pragma unroll
  for (int v = 0; v < kVec; ++v) out.at[v] = to_acc(raw.at[v]);
  return out;
}

template <int kVec>
__device__ __forceinline__ Pair<float> pair(const Run<float, kVec>& run, int v) {
  return {run.at[v], run.at[v + 1]};
}

template <int kVec>
__device__ __forceinline__ void set_pair(Run<float, kVec>& run, int v, Pair<float> value) {
  run.at[v] = value.re;
  run.at[v + 1] = value.im;
}

constexpr int kGroup = 4;  // segments whose starts a thread reads at once

// Threads run along the columns of one position (x), blocks over positions (y within, x across).
struct Place {
  int64_t position;
  int64_t column;
};

template <int kVec>
__device__ __forceinline__ Place place() {
  return {static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y,
          (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kVec};
}

// The weight of the states of age `newest` up to `oldest`: C[oldest] - C[newest], with C[0] = 0.
template <int kVec>
__device__ __forceinline__ Run<float, kVec> coefficient(const float* table, int oldest, int newest,
                                                        int64_t width, int64_t column) {
  Run<float, kVec> c = load<kVec>(table + oldest * width + column);
  if (newest > 0) {
    const Run<float, kVec> less = load<kVec>(table + newest * width + column);
#pragma unroll
    for (int v = 0; v < kVec; ++v) c.at[v] -= less.at[v];
  }
  return c;
}

template <int kVec, class T>
__global__ void step_kernel(const float* acc, const T* embed, const float* turn, float* out,
                            int64_t rows, int64_t width) {
  const Place at = place<kVec>();
  if (at.position >= rows || at.column >= width) return;
  const int64_t offset = at.position * width + at.column;
  const Run<float, kVec> c = load<kVec>(turn + at.column);
  const Run<float, kVec> past = load<kVec>(acc + offset);
  Run<float, kVec> sum = load<kVec>(embed + offset);
#pragma unroll
  for (int v = 0; v < kVec; v += 2)
    set_pair(sum, v, pair(sum, v) + pair(c, v) * pair(past, v));
  *reinterpret_cast<Run<float, kVec>*>(out + offset) = sum;
}

template <int kVec, class T>
__global__ void embed_kernel(const T* weight, Segments segments, const float* table, float* out,
                             int64_t width) {
  const Place at = place<kVec>();
  if (at.position >= segments.total || at.column >= width) return;
  const int num_states = segments.num_states(at.position);
  Run<float, kVec> sum{};
  int newest = 0;
  for (int64_t top = segments.count - 1; newest < num_states; top -= kGroup) {
    const Group<kGroup> group(segments, at.position, top, newest, num_states);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      if (!group.is_empty(j)) {
        const Run<float, kVec> c =
            coefficient<kVec>(table, group.edge[j + 1], group.edge[j], width, at.column);
        const int token = segments.token(top - j, at.position);
        const Run<float, kVec> e = load<kVec>(weight + token * width + at.column);
#pragma unroll
        for (int v = 0; v < kVec; v += 2)
          set_pair(sum, v, pair(sum, v) + pair(c, v) * pair(e, v));
      }
    }
    newest = group.edge[kGroup];
  }
  *reinterpret_cast<Run<float, kVec>*>(out + at.position * width + at.column) = sum;
}

// Fast, but the order of the additions, and so the last bits, vary from run to run.
template <int kVec>
__global__ void backward_atomic_kernel(const float* grad, Segments segments, const float* table,
                                       float* grad_weight, int64_t width) {
  const Place at = place<kVec>();
  if (at.position >= segments.total || at.column >= width) return;
  const int num_states = segments.num_states(at.position);
  const Run<float, kVec> g = load<kVec>(grad + at.position * width + at.column);
  int newest = 0;
  for (int64_t top = segments.count - 1; newest < num_states; top -= kGroup) {
    const Group<kGroup> group(segments, at.position, top, newest, num_states);
#pragma unroll
    for (int j = 0; j < kGroup; ++j) {
      if (!group.is_empty(j)) {
        const Run<float, kVec> c =
            coefficient<kVec>(table, group.edge[j + 1], group.edge[j], width, at.column);
        float* to = grad_weight + segments.token(top - j, at.position) * width + at.column;
#pragma unroll
        for (int v = 0; v < kVec; v += 2) {
          const Pair<float> turned = conj_times(pair(c, v), pair(g, v));
          atomicAdd(to + v, turned.re);
          atomicAdd(to + v + 1, turned.im);
        }
      }
    }
    newest = group.edge[kGroup];
  }
}

// Deterministic: one thread sums all contributions to its elements of a weight row, in the order of
// `entry`, which lists (segment s, position) as s * B * N + position, sorted by token; row v owns
// entry[first[v]] up to entry[first[v + 1]]. Rows without entries become zero.
template <int kVec>
__global__ void backward_sorted_kernel(const float* grad, Segments segments, const float* table,
                                       const int32_t* entry, const int32_t* first,
                                       float* grad_weight, int64_t width) {
  const int64_t token = blockIdx.x;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kVec;
  if (column >= width) return;
  Run<float, kVec> sum{};
  for (int32_t i = first[token]; i < first[token + 1]; ++i) {
    const int64_t position = entry[i] % segments.total;
    const int64_t s = entry[i] / segments.total;
    const int num_states = segments.num_states(position);
    const int oldest = states_since(s > 0 ? segments.end(s - 1, position) : 0, num_states);
    const int newest =
        s + 1 < segments.count ? states_since(segments.end(s, position), num_states) : 0;
    const Run<float, kVec> c = coefficient<kVec>(table, oldest, newest, width, column);
    const Run<float, kVec> g = load<kVec>(grad + position * width + column);
#pragma unroll
    for (int v = 0; v < kVec; v += 2)
      set_pair(sum, v, pair(sum, v) + conj_times(pair(c, v), pair(g, v)));
  }
  *reinterpret_cast<Run<float, kVec>*>(grad_weight + token * width + column) = sum;
}

template <int kVec>
dim3 block_for(int64_t width) {
  const int64_t needed = (width / kVec + 31) / 32 * 32;  // whole warps
  const int x = static_cast<int>(needed < kThreads ? needed : kThreads);
  return dim3(x, kThreads / x);
}

template <int kVec>
dim3 grid_for(dim3 block, int64_t rows, int64_t width) {
  const int64_t columns = width / kVec;
  return dim3(static_cast<unsigned>((rows + block.y - 1) / block.y),
              static_cast<unsigned>((columns + block.x - 1) / block.x));
}

template <int kVec, class T>
int launch_step(const float* acc, const T* embed, const float* turn, float* out, int64_t rows,
                int64_t width, void* stream) {
  const dim3 block = block_for<kVec>(width);
  const dim3 grid = grid_for<kVec>(block, rows, width);
  auto* kernel = &step_kernel<kVec, T>;
  REMASK_LAUNCH(kernel, grid, block, stream, acc, embed, turn, out, rows, width);
  return cudaGetLastError();
}

template <class T>
int step_any(const void* acc, const void* embed, const void* turn, void* out, int64_t rows,
             int64_t width, void* stream) {
  const auto launch = width % 4 == 0 ? launch_step<4, T> : launch_step<2, T>;
  return launch(static_cast<const float*>(acc), static_cast<const T*>(embed),
                static_cast<const float*>(turn), static_cast<float*>(out), rows, width, stream);
}

template <int kVec, class T>
int launch_embed(const T* weight, Segments segments, const float* table, float* out, int64_t width,
                 void* stream) {
  const dim3 block = block_for<kVec>(width);
  const dim3 grid = grid_for<kVec>(block, segments.total, width);
  auto* kernel = &embed_kernel<kVec, T>;
  REMASK_LAUNCH(kernel, grid, block, stream, weight, segments, table, out, width);
  return cudaGetLastError();
}

template <class T>
int embed_any(const void* weight, Segments segments, const void* table, void* out, int64_t width,
              void* stream) {
  const auto launch = width % 4 == 0 ? launch_embed<4, T> : launch_embed<2, T>;
  return launch(static_cast<const T*>(weight), segments, static_cast<const float*>(table),
                static_cast<float*>(out), width, stream);
}

template <int kVec>
int launch_backward_atomic(const float* grad, Segments segments, const float* table,
                           float* grad_weight, int64_t width, void* stream) {
  const dim3 block = block_for<kVec>(width);
  const dim3 grid = grid_for<kVec>(block, segments.total, width);
  auto* kernel = &backward_atomic_kernel<kVec>;
  REMASK_LAUNCH(kernel, grid, block, stream, grad, segments, table, grad_weight, width);
  return cudaGetLastError();
}

template <int kVec>
int launch_backward_sorted(const float* grad, Segments segments, const float* table,
                           const int32_t* entry, const int32_t* first, float* grad_weight,
                           int64_t vocabulary, int64_t width, void* stream) {
  const dim3 block(block_for<kVec>(width).x);
  const dim3 grid = grid_for<kVec>(block, vocabulary, width);
  auto* kernel = &backward_sorted_kernel<kVec>;
  REMASK_LAUNCH(kernel, grid, block, stream, grad, segments, table, entry, first, grad_weight,
                width);
  return cudaGetLastError();
}

constexpr int kUnsupported = -1;

}  // namespace

// Each launcher returns the CUDA error code of its launch: 0 for success, -1 for an unsupported
// type.
extern "C" {

const char* remask_cuda_error(int code) {
  return code == kUnsupported ? "unsupported dtype"
                              : cudaGetErrorString(static_cast<cudaError_t>(code));
}

int remask_cuda_history_step(const void* acc, const void* embed, const void* turn, void* out,
                             int64_t rows, int64_t width, int dtype, void* stream) {
  switch (dtype) {
    case kFloat32:
      return step_any<float>(acc, embed, turn, out, rows, width, stream);
    case kBFloat16:
      return step_any<BFloat16>(acc, embed, turn, out, rows, width, stream);
    case kFloat16:
      return step_any<Float16>(acc, embed, turn, out, rows, width, stream);
    default:
      return kUnsupported;
  }
}

int remask_cuda_history_embed(const void* weight, const int32_t* tokens, const int32_t* ends,
                              const int32_t* step, const void* table, void* out, int64_t count,
                              int64_t batch, int64_t positions, int64_t width, int dtype,
                              void* stream) {
  const Segments segments{tokens, ends, step, count, batch * positions, positions};
  switch (dtype) {
    case kFloat32:
      return embed_any<float>(weight, segments, table, out, width, stream);
    case kBFloat16:
      return embed_any<BFloat16>(weight, segments, table, out, width, stream);
    case kFloat16:
      return embed_any<Float16>(weight, segments, table, out, width, stream);
    default:
      return kUnsupported;
  }
}

// With `entry` and `first` null the sum is atomic and `grad_weight` must be zero on entry; with them
// it is deterministic and every element of `grad_weight` is written.
int remask_cuda_history_embed_backward(const void* grad, const int32_t* tokens,
                                       const int32_t* ends, const int32_t* step,
                                       const void* table, const int32_t* entry,
                                       const int32_t* first, void* grad_weight, int64_t count,
                                       int64_t batch, int64_t positions, int64_t vocabulary,
                                       int64_t width, void* stream) {
  const Segments segments{tokens, ends, step, count, batch * positions, positions};
  const auto* g = static_cast<const float*>(grad);
  const auto* c = static_cast<const float*>(table);
  auto* out = static_cast<float*>(grad_weight);
  if (entry == nullptr) {
    const auto launch = width % 4 == 0 ? launch_backward_atomic<4> : launch_backward_atomic<2>;
    return launch(g, segments, c, out, width, stream);
  }
  const auto launch = width % 4 == 0 ? launch_backward_sorted<4> : launch_backward_sorted<2>;
  return launch(g, segments, c, entry, first, out, vocabulary, width, stream);
}

}  // extern "C"
