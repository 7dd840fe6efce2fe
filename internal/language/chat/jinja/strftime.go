package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime is Python's datetime.strftime in the C locale. Between % and the letter the flags of glibc may stand:
// - for no padding, _ for spaces, 0 for zeros, ^ for capitals.
func (in *interp) strftime(t time.Time, format Str) Str {
	b := textBuilder{in: in}
	text, last := format.text, 0
	for {
		k := strings.IndexByte(text[last:], '%')
		if k < 0 || last+k+1 >= len(text) {
			break
		}
		in.step(1)
		at := last + k
		b.add(format.sub(last, at))
		i, flag, upper := at+1, byte(0), false
		for ; i < len(text)-1 && strings.IndexByte("-_0^", text[i]) >= 0; i++ {
			if text[i] == '^' {
				upper = true
			} else {
				flag = text[i]
			}
		}
		s, ok := directive(t, text[i], flag)
		if !ok {
			s = text[at : i+1] // unknown directives stay as they are
		}
		if upper {
			s = strings.ToUpper(s)
		}
		b.text(s)
		last = i + 1
		if c := text[i]; c >= 0x80 { // the rest of a code point
			for last < len(text) && text[last]&0xc0 == 0x80 {
				b.text(text[last : last+1])
				last++
			}
		}
	}
	b.add(format.sub(last, len(text)))
	return b.str()
}

func directive(t time.Time, c, flag byte) (string, bool) {
	num := func(n, width int, pad byte) (string, bool) {
		switch flag {
		case '-':
			return fmt.Sprint(n), true
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
		if pad == ' ' {
			return fmt.Sprintf("%*d", width, n), true
		}
		return fmt.Sprintf("%0*d", width, n), true
	}
	hour12 := (t.Hour()+11)%12 + 1
	weekday := int(t.Weekday())
	switch c {
	case 'a':
		return t.Format("Mon"), true
	case 'A':
		return t.Format("Monday"), true
	case 'b', 'h':
		return t.Format("Jan"), true
	case 'B':
		return t.Format("January"), true
	case 'c':
		return t.Format("Mon Jan _2 15:04:05 2006"), true
	case 'C':
		return num(t.Year()/100, 2, '0')
	case 'd':
		return num(t.Day(), 2, '0')
	case 'D', 'x':
		return t.Format("01/02/06"), true
	case 'e':
		return num(t.Day(), 2, ' ')
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'F':
		return t.Format("2006-01-02"), true
	case 'g':
		year, _ := t.ISOWeek()
		return num(year%100, 2, '0')
	case 'G':
		year, _ := t.ISOWeek()
		return num(year, 1, '0')
	case 'H':
		return num(t.Hour(), 2, '0')
	case 'I':
		return num(hour12, 2, '0')
	case 'j':
		return num(t.YearDay(), 3, '0')
	case 'k':
		return num(t.Hour(), 2, ' ')
	case 'l':
		return num(hour12, 2, ' ')
	case 'm':
		return num(int(t.Month()), 2, '0')
	case 'M':
		return num(t.Minute(), 2, '0')
	case 'n':
		return "\n", true
	case 'p':
		return t.Format("PM"), true
	case 'P':
		return t.Format("pm"), true
	case 'r':
		return t.Format("03:04:05 PM"), true
	case 'R':
		return t.Format("15:04"), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'S':
		return num(t.Second(), 2, '0')
	case 't':
		return "\t", true
	case 'T', 'X':
		return t.Format("15:04:05"), true
	case 'u':
		return num((weekday+6)%7+1, 1, '0')
	case 'U':
		return num((t.YearDay()-1+7-weekday)/7, 2, '0')
	case 'V':
		_, week := t.ISOWeek()
		return num(week, 2, '0')
	case 'w':
		return num(weekday, 1, '0')
	case 'W':
		return num((t.YearDay()-1+7-(weekday+6)%7)/7, 2, '0')
	case 'y':
		return num(t.Year()%100, 2, '0')
	case 'Y':
		return num(t.Year(), 1, '0')
	case 'z', 'Z': // datetime.now() knows no time zone
		return "", true
	case '%':
		return "%", true
	}
	return "", false
}
