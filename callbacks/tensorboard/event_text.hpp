#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/callbacks/tracking/tracker_record.hpp"

namespace troupe::tensorboard {

// Each appends one record of an event file: framed, with checksums. Times are
// the records' own, so that a record that is written again has equal bytes.

struct event_head {
  std::chrono::system_clock::time_point time;
  std::int64_t step = 0;
};

/// The first record of every file.
void append_version(std::string& out,
                    std::chrono::system_clock::time_point time);

/// A reader forgets all of *head.step* or later that came before.
void append_restart(std::string& out, event_head head);

/// Kept as float: 24 bits of mantissa.
void append_scalar(std::string& out, event_head head, std::string_view tag,
                   double value);

void append_text(std::string& out, event_head head, std::string_view tag,
                 std::string_view text);

void append_histogram(std::string& out, event_head head,
                      const logged_histogram& x);

/// *png* is the image as *x* describes it.
void append_image(std::string& out, event_head head, const logged_image& x,
                  std::string_view png);

/// A record for the page "HParams": *content* is its plugin's message.
void append_hparams(std::string& out,
                    std::chrono::system_clock::time_point time,
                    std::string_view tag, std::string_view content);

} // namespace troupe::tensorboard
