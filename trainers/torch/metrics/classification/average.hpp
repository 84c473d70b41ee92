#pragma once

namespace troupe {

/// How the scores of several classes or labels become one.
enum class average {
  micro,    ///< All classes count as one.
  macro,    ///< The mean over those classes that occur at all.
  weighted, ///< The mean, weighted by how often a class is the target.
  none,     ///< Not at all: the value is a vector.
};

/// How counts become a score. A binary task has nothing to average.
struct score_options {
  troupe::average average = troupe::average::micro;
  double zero_division = 0; ///< The score of a class where it is 0 / 0.
};

} // namespace troupe
