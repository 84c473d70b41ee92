#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors.hpp>

// What clients and the service say to each other.

using features = std::array<float, 4>;

/// A point at which the function to be learned is known.
struct sample {
  features at{};
  float value = 0;
};

template <class Inspector>
bool inspect(Inspector& f, sample& x) {
  return f.object(x).fields(f.field("at", x.at), f.field("value", x.value));
}

struct add_samples {
  std::vector<sample> samples;
};

template <class Inspector>
bool inspect(Inspector& f, add_samples& x) {
  return f.object(x).fields(f.field("samples", x.samples));
}

/// The samples are in the service's files.
struct samples_added {
  std::uint64_t total = 0;
};

template <class Inspector>
bool inspect(Inspector& f, samples_added& x) {
  return f.object(x).fields(f.field("total", x.total));
}

struct predict {
  features at{};
};

template <class Inspector>
bool inspect(Inspector& f, predict& x) {
  return f.object(x).fields(f.field("at", x.at));
}

struct prediction {
  float value = 0;
  std::string checkpoint; ///< That answered; newer ones have greater names.
};

template <class Inspector>
bool inspect(Inspector& f, prediction& x) {
  return f.object(x).fields(f.field("value", x.value),
                            f.field("checkpoint", x.checkpoint));
}

/// The service for its clients.
using service_actor = caf::typed_actor<
  // Answers once the samples are written.
  caf::result<samples_added>(add_samples),
  // Answers with the newest checkpoint; an error before the first one.
  caf::result<prediction>(predict)>;

// The ids of a program's own messages begin where Troupe's end.
CAF_BEGIN_TYPE_ID_BLOCK(service_messages, ::troupe::first_user_type_id)
CAF_ADD_TYPE_ID(service_messages, (add_samples))
CAF_ADD_TYPE_ID(service_messages, (samples_added))
CAF_ADD_TYPE_ID(service_messages, (predict))
CAF_ADD_TYPE_ID(service_messages, (prediction))
CAF_END_TYPE_ID_BLOCK(service_messages)
