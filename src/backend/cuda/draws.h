// The random numbers of a node's elements. They equal the CPU's, because within a step an element's number depends only
// on its sample and on its position in the sample.
#pragma once

#include <algorithm>

#include "arith/random.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

struct Draws {
  // Reads the node's attributes `key` and `samples`. The node draws a random number for each of `count` elements.
  Draws(const KernelRequest &request, std::int64_t count) {
    const std::int64_t given = request.node.attributes.integer("samples", 0);
    key = static_cast<std::uint64_t>(request.node.attributes.integer("key", 0));
    per_sample = count / std::max<std::int64_t>(given, 1);
    quads = divided_up(per_sample, 4);
    drawn = per_sample == 0 ? 0 : count / per_sample * quads;
    samples = given != 0;
  }

  // Calls body(element, word) for this thread's share of the elements. `word` holds 32 random bits.
  template <typename Body>
  __device__ void each(const StepScalars &now, Body body) const {
    const arith::Stream numbers = arith::stream_of(now.seed, now.step, key);
    for (std::int64_t i = thread_index(); i < drawn; i += thread_count()) {
      std::int64_t quad = 0;
      const std::int64_t sample = divide(i, quads, quad);
      const std::uint64_t number = samples ? now.first_sample + static_cast<std::uint64_t>(sample) : 0;
      const arith::Words words = arith::numbers(numbers, number, static_cast<std::uint64_t>(quad));
      for (int j = 0; j < 4 && 4 * quad + j < per_sample; ++j) body(sample * per_sample + 4 * quad + j, words.word[j]);
    }
  }

  std::uint64_t key;
  std::int64_t per_sample, quads;  // elements of a sample; groups of four in a sample, drawn together
  std::int64_t drawn;              // groups of four in all samples
  bool samples;                    // each sample has its own numbers; else all elements belong to sample 0
};

}  // namespace protrain::backend::cuda
