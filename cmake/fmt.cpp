// The one place that compiles fmt's code. All other files see only its declarations, and compile in half the time.
#include <fmt/format-inl.h>

// The templates that fmt's headers declare as instantiated elsewhere, in versions 9 to 11.
namespace fmt::detail {
template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template char decimal_point_impl<char>(locale_ref);
template dragonbox::decimal_fp<float> dragonbox::to_decimal<float>(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal<double>(double) noexcept;
#if FMT_VERSION < 110000
template void vformat_to<char>(buffer<char> &, string_view, format_args, locale_ref);
#endif
}  // namespace fmt::detail
