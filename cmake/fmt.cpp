// The one place that compiles fmt's code. All other files see only its declarations, and compile in half the time.
#include <fmt/format-inl.h>

// The templates that fmt's headers declare as instantiated elsewhere.
namespace fmt::detail {
template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template char decimal_point_impl<char>(locale_ref);
}  // namespace fmt::detail
