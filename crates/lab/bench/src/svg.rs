//! What the pictures are drawn with: SVG by hand, on a background of its own, so that a picture can be read on
//! light and dark pages alike.

use std::fmt::{Arguments, Write};

/// Width of all pictures.
pub(crate) const WIDTH: f64 = 960.0;
/// Space at the left and right edge.
pub(crate) const EDGE: f64 = 24.0;

/// Sizes of the writing. Classes stand below one of the picture, for in a page the style is that of all pictures.
const STYLE: &str = ".lab text{font:12px system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;\
    fill:#24292f;font-variant-numeric:tabular-nums}.lab .t{font-size:16px;font-weight:600}.lab .s{fill:#57606a}\
    .lab .h{font-weight:600;fill:#24292f}.lab .v{font-size:11px;fill:#57606a}.lab .e{text-anchor:end}\
    .lab .m{text-anchor:middle}.lab .o{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}";

/// What tells a file that it is a picture; a page knows.
pub(crate) const NAMESPACE: &str = " xmlns=\"http://www.w3.org/2000/svg\"";

const BACKGROUND: &str = "#ffffff";
/// Lines of axes, and those after what is shown.
pub(crate) const AXIS: &str = "#8c959f";
pub(crate) const GRID: &str = "#e4e8ec";

/// A picture that is being drawn.
pub(crate) struct Canvas {
    body: String,
    /// Where the next thing goes.
    pub y: f64,
}

impl Canvas {
    /// With a headline, of more than one line if it has to be, and lines below it.
    pub fn new(title: &str, lines: &[&str]) -> Canvas {
        let mut canvas = Canvas { body: String::new(), y: 34.0 };
        for (n, line) in wrapped(title, 16.0).iter().enumerate() {
            canvas.y += if n == 0 { 0.0 } else { 21.0 };
            canvas.text(EDGE, canvas.y, "t", line);
        }
        for line in lines {
            canvas.y += 18.0;
            canvas.text(EDGE, canvas.y, "s", line);
        }
        canvas.y += 12.0;
        canvas
    }

    pub fn put(&mut self, text: Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(text);
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = escape(text);
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>"));
    }

    /// A name and, after it, what is said of it.
    pub fn heading(&mut self, x: f64, name: &str, text: &str) {
        let (y, name, text) = (self.y, escape(name), escape(text));
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"s\"><tspan class=\"h\">{name}</tspan>\
             <tspan dx=\"10\">{text}</tspan></text>"
        ));
    }

    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), paint: &str) {
        self.put(format_args!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {paint}/>"));
    }

    pub fn vertical(&mut self, x: f64, from: f64, to: f64, paint: &str) {
        self.put(format_args!("<path d=\"M{x:.1} {from:.1}V{to:.1}\" fill=\"none\" {paint}/>"));
    }

    /// Colours and what they mean, in a line, or more if they do not fit between two edges.
    pub fn legend<'a>(&mut self, (left, right): (f64, f64), entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut x = left;
        self.y += 8.0;
        for (paint, name) in entries {
            let width = 18.0 + text_width(name, 12.0) + 16.0;
            if x + width > right && x > left {
                (x, self.y) = (left, self.y + 18.0);
            }
            self.rect((x, self.y - 1.0), (12.0, 12.0), &format!("rx=\"2\" {paint}"));
            self.text(x + 18.0, self.y + 9.5, "s", name);
            x += width;
        }
        self.y += 24.0;
    }

    /// The whole file, as high as what was drawn.
    pub fn finish(self, title: &str) -> String {
        let height = (self.y + EDGE).ceil();
        let title = escape(title);
        format!(
            "<svg{NAMESPACE} class=\"lab\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\"><title>{title}</title><style>{STYLE}</style>\
             <rect x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"{BACKGROUND}\" stroke=\"#d0d7de\"/>\n\
             {}</svg>\n",
            WIDTH - 1.0,
            height - 1.0,
            self.body
        )
    }
}

/// Fills with a colour.
pub(crate) fn fill(colour: &str) -> String {
    format!("fill=\"{colour}\"")
}

/// A width that text does not exceed in the usual fonts.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.6
}

/// Lines of text of this size that fit between the edges, if their words do.
fn wrapped(text: &str, size: f64) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        let longer = if line.is_empty() { word.to_string() } else { format!("{line} {word}") };
        if !line.is_empty() && text_width(&longer, size) > WIDTH - 2.0 * EDGE {
            lines.push(std::mem::replace(&mut line, word.into()));
        } else {
            line = longer;
        }
    }
    lines.push(line);
    lines
}

/// 1, 2 or 5 times a power of ten, at least `least`.
pub(crate) fn step(least: f64) -> f64 {
    if !(least > 0.0 && least.is_finite()) {
        return 1.0;
    }
    let power = 10f64.powi(libm::floor(libm::log10(least)) as i32);
    // What rounding adds makes no step too small.
    [1.0, 2.0, 5.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|s| *s >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// Values from 0 to `most` in round steps, at most `count` of them after the 0.
pub(crate) fn ticks(most: f64, count: usize) -> Vec<f64> {
    let step = step(most / count as f64);
    (0..=(most / step + 1e-9) as usize).map(|i| i as f64 * step).collect()
}

/// A tick without digits that say nothing.
pub(crate) fn tick(n: f64) -> String {
    let digits = (0..4usize).find(|d| (n * 10f64.powi(*d as i32)).fract().abs() < 1e-6).unwrap_or(4);
    grouped(&format!("{n:.digits$}"))
}

/// Three digits, or all before the point.
pub(crate) fn number(n: f64) -> String {
    match n.abs() {
        99.95.. => grouped(&format!("{n:.0}")),
        9.995.. => format!("{n:.1}"),
        _ => format!("{n:.2}"),
    }
}

/// A whole number.
pub(crate) fn count(n: f64) -> String {
    grouped(&format!("{n:.0}"))
}

/// With commas between thousands.
fn grouped(digits: &str) -> String {
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut out = sign.to_string();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(93.0, 8), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(9.1, 5), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(0.5, 5).len(), 6);
        assert_eq!(ticks(0.0, 5), [0.0]);
        assert_eq!([0.15, 0.2, 3.0, 7.0].map(step), [0.2, 0.2, 5.0, 10.0]);
        assert_eq!([0.0, 0.25, 2.5, 1500.0].map(tick), ["0", "0.25", "2.5", "1,500"]);
    }

    #[test]
    fn a_headline_that_is_too_long_takes_two_lines() {
        assert_eq!(wrapped("a headline", 16.0), ["a headline"]);
        let long = "word ".repeat(30);
        let lines = wrapped(long.trim(), 16.0);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|line| text_width(line, 16.0) <= WIDTH - 2.0 * EDGE));
        assert_eq!(lines.join(" "), long.trim());
        assert_eq!(wrapped(&"w".repeat(300), 16.0).len(), 1);
        assert_eq!(Canvas::new(long.trim(), &[]).y, Canvas::new("", &[]).y + 21.0);
    }

    #[test]
    fn numbers_have_three_digits_and_commas() {
        let all = [0.0, 0.125, 9.99, 9.996, 99.94, 99.96, 502.4, 96_614.0, 1_234_567.0, -1000.0];
        let wanted = ["0.00", "0.12", "9.99", "10.0", "99.9", "100", "502", "96,614", "1,234,567", "-1,000"];
        assert_eq!(all.map(number), wanted);
    }
}
